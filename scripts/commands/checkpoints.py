"""`perdure checkpoints RUN`: the records of a run, without their content."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from activities.store import open_store
from scripts.commands.running import NO, run
from scripts.records import Line, survey, thread_of
from workers.settings import read_settings

Run = Annotated[str, typer.Argument(help="the workflow id, or <workflow id>.<start> for an earlier start")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON, one object")]


def checkpoints(which: Run, as_json: AsJson = False) -> None:
    """List a run's checkpoints: number, schema, size, digest, and whether each is what it says."""
    run(_list(which, as_json))


async def _list(which: str, as_json: bool) -> int:
    store = open_store(read_settings().store)
    thread = await thread_of(store, which)
    lines = await survey(store, thread)
    if as_json:
        print(json.dumps({"thread": thread, "checkpoints": [line.view() for line in lines]}, indent=2))
    else:
        show(thread, lines)
    return 0 if all(line.good for line in lines) else NO


def show(thread: str, lines: list[Line]) -> None:
    """The table."""
    table = Table(title=f"Checkpoints of {escape(thread)}", title_justify="left")
    for name in ("sequence", "branch", "schema", "bytes", "sha256", "step", "status", "state"):
        table.add_column(name, justify="right" if name in ("sequence", "bytes") else "left", overflow="fold")
    for line in lines:
        schema = "" if line.schema is None else str(line.schema)
        cells = [str(line.sequence), line.branch, schema, str(line.bytes), line.sha256[:12], line.step, line.status]
        table.add_row(*(escape(cell) for cell in cells), "ok" if line.good else f"[red]{escape(line.state)}[/red]")
    Console(emoji=False).print(table)
