"""`perdure doctor`: what is wrong with an installation, and the command that mends it."""

import dataclasses
import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from scripts.commands.running import DONE, NO, OUT_OF_REACH, run
from workers.checked_bundles import Finding
from workers.checkup import checkup
from workers.settings import read_usable

MARKS = {"ok": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "bad": "[red]bad[/] "}


def doctor(
    model: Annotated[bool, typer.Option("--model", help="ask each model route of the bundles one tiny thing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """Check server, namespace, store, bundles, tools, workers and codec. Exit code 1 when something is wrong, 3 when
    the Temporal service is out of reach."""
    run(_doctor(model, as_json))


async def _doctor(model: bool, as_json: bool) -> int:
    found = await checkup(*read_usable(), model=model)
    if as_json:
        json.dump([dataclasses.asdict(each) for each in found], sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(found)
    if any(each.check == "server" and each.state == "bad" for each in found):
        return OUT_OF_REACH
    return NO if any(each.state == "bad" for each in found) else DONE


def _print(found: list[Finding]) -> None:
    console = Console(emoji=False, soft_wrap=True)
    for each in found:
        console.print(f"{MARKS[each.state]} {each.check}: ", end="")
        console.print(each.said, markup=False, highlight=False)
        if each.remedy:
            console.print(f"     → {each.remedy}", markup=False, highlight=False)
