"""The work that every contender of ours does: 500 B of model text and one tool call with a 2 KB result per turn.

Text and results are random letters, so that no compression flatters the figures. Everything that the model must know
stands in a marker at the head of each result (and of the goal), so the model needs no memory: it reads the last one.
"""

import base64
import os
import random
import re
from pathlib import Path
from typing import NamedTuple, Self

from activities.tools import Operation, tool

TEXT, RESULT = 500, 2048
OUTSIDE = "BENCH_OUTSIDE"
"""The variable that names the folder which plays the world outside of `bench_crash`."""

_MARK = re.compile(rb"\[at (\d+) of (\d+), (\w+), (\d+) B\]")


class Mark(NamedTuple):
    """Where a run is: result `number` of `turns`, all of `tool`, with `size` bytes each."""

    number: int
    turns: int
    tool: str
    size: int = RESULT

    def __str__(self) -> str:
        return f"[at {self.number} of {self.turns}, {self.tool}, {self.size} B]"

    @classmethod
    def last_in(cls, body: bytes) -> Self:
        """The last mark in a request. Raises ValueError when there is none."""
        found = _MARK.match(body, max(0, body.rfind(b"[at ")))
        if found is None:
            raise ValueError("the request holds no mark of the bench")
        return cls(int(found[1]), int(found[2]), found[3].decode(), int(found[4]))


def letters(seed: str, size: int) -> str:
    """The same `size` letters for the same seed; of a large text only the first 64 KiB are random."""
    drawn = base64.b64encode(random.Random(seed).randbytes(min(size, 1 << 16))).decode()  # noqa: S311
    return (drawn * (size // len(drawn) + 1))[:size]


def result(number: int, turns: int, name: str, size: int) -> str:
    """What a tool gives: the mark, and letters."""
    mark = str(Mark(number, turns, name, size))
    return mark + letters(f"result {number}", max(1, size - len(mark)))


@tool(effect="read", local=True)
async def bench_read(number: int, turns: int, size: int) -> str:
    """Read, as a local activity."""
    return result(number, turns, "bench_read", size)


@tool(effect="read")
async def bench_look(number: int, turns: int, size: int) -> str:
    """Read, as a normal activity."""
    return result(number, turns, "bench_look", size)


@tool(effect="idempotent")
async def bench_touch(number: int, turns: int, size: int) -> str:
    """Have an effect that takes no time."""
    return result(number, turns, "bench_touch", size)


@tool(effect="idempotent")
async def bench_ask(number: int, turns: int, size: int) -> str:
    """Have an effect that the bundle asks a person about."""
    return result(number, turns, "bench_ask", size)


@tool(effect="idempotent", timeout=10)
async def bench_crash(number: int, turns: int, size: int, *, op: Operation) -> str:
    """Have an effect outside, under the idempotency key; the worker dies right after the first one."""
    outside = Path(os.environ[OUTSIDE])
    with (outside / "requests").open("a") as log:
        log.write(f"{op.idempotency_key}\n")
    try:
        (outside / "effects").mkdir(exist_ok=True)
        (outside / "effects" / op.idempotency_key.replace("/", "_")).touch(exist_ok=False)
    except FileExistsError:
        return result(number, turns, "bench_crash", size)
    if len((outside / "requests").read_text().splitlines()) == 1:
        os._exit(1)
    return result(number, turns, "bench_crash", size)
