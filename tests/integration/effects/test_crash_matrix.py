"""Workers die by SIGKILL at every window, with tools of every class, against a real service: what comes of it.

The whole matrix prints the table of docs/effects.md; a cell that differs from what is printed there fails.
"""

import asyncio
import sys
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.integration.effects.crashes import CLASSES, WINDOWS, Cell, cell, effects_stack
from tests.integration.kit import Stack

DOC = Path(__file__).parents[3] / "docs" / "effects.md"
WITHOUT_LEDGER = {"before PREPARED", "after PREPARED", "after the effect", "after COMMITTED"}
CELLS = [(window, tool) for window in WINDOWS for tool in CLASSES if tool != "reads" or window not in WITHOUT_LEDGER]


def documented(window: str, tool: str) -> str:
    """What docs/effects.md says of a cell."""
    rows = [line.split("|")[1:-1] for line in DOC.read_text().splitlines() if line.startswith("|")]
    head = next(row for row in rows if row[0].strip() == "killed")
    row = next(row for row in rows if row[0].strip() == window)
    return row[[part.strip() for part in head].index(CLASSES[tool])].strip()


def check(window: str, tool: str, found: Cell) -> None:
    assert str(found) == documented(window, tool), f"{window}, {tool}"


REPRESENTATIVES = [("after the effect", "keyed"), ("during the effect", "reviewed")]


async def test_a_worker_killed_around_an_effect_leaves_what_the_table_says(stack: Stack, client: Client) -> None:
    async with effects_stack(stack, REPRESENTATIVES) as outside:
        found = await asyncio.gather(*(cell(stack, client, outside, *each) for each in REPRESENTATIVES))
        for (window, tool), seen in zip(REPRESENTATIVES, found, strict=True):
            check(window, tool, seen)
        assert all(len(keys) == 1 for keys in outside.seen_keys.values()), "one key in all attempts"


@pytest.mark.all
async def test_the_whole_crash_matrix(stack: Stack, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    gate, found = asyncio.Semaphore(2), dict[tuple[str, str], Cell]()
    async with effects_stack(stack, CELLS) as outside:

        async def one(window: str, tool: str) -> None:
            async with gate:
                found[window, tool] = await cell(stack, client, outside, window, tool)

        await asyncio.gather(*(one(*each) for each in CELLS))
        assert all(len(keys) == 1 for keys in outside.seen_keys.values()), "one key in all attempts"
    with capsys.disabled():
        sys.stdout.write(f"\n{table(found)}\n\n{times(found)}\n")
    for (window, tool), each in found.items():
        check(window, tool, each)


def table(found: dict[tuple[str, str], Cell]) -> str:
    """The table of docs/effects.md."""
    lines = ["| killed | " + " | ".join(CLASSES.values()) + " |", "|---" * (len(CLASSES) + 1) + "|"]
    for window in WINDOWS:
        cells = [str(found.get((window, tool), "-")) for tool in CLASSES]
        lines.append(f"| {window} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def times(found: dict[tuple[str, str], Cell]) -> str:
    """The slowest recovery of each class, in seconds from the kill to the outcome or the question to a person."""
    slowest = {tool: max(each.seconds for (_, name), each in found.items() if name == tool) for tool in CLASSES}
    return "slowest recovery, s: " + ", ".join(f"{tool} {seconds:.1f}" for tool, seconds in slowest.items())
