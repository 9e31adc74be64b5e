"""`perdure files RUN [PATH]`: the files of a run's workspace, as its last checkpoint has them, from the store alone."""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from activities.closing import artifacts
from activities.entries import Entries
from activities.errors import Failure
from activities.store import open_store
from activities.workspaces import Workspaces
from scripts.commands.running import Refused, run
from scripts.records import newest, thread_of
from workers.settings import read_settings

Run = Annotated[str, typer.Argument(help="the workflow id, or <workflow id>.<start> for an earlier start")]
Path = Annotated[str | None, typer.Argument(help="a file: its content is written to standard output")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON, one object")]


def files(which: Run, path: Path = None, as_json: AsJson = False) -> None:
    """List the files of a run's workspace, or print one of them."""
    run(_files(which, path, as_json))


async def _files(which: str, path: str | None, as_json: bool) -> int:
    settings = read_settings()
    store = open_store(settings.store)
    thread = await thread_of(store, which)
    try:
        record = await newest(store, thread)
        workspaces = Workspaces(store, Entries(store), settings.workspaces)
        listing = await workspaces.listing(thread, record.inputs.files)
        if path is not None:
            kept = listing.get(path)
            if kept is None or kept.sha256 is None:
                raise Refused(
                    f"{thread} has no file {path!r} at checkpoint {record.sequence}; see `perdure files {which}`"
                )
            sys.stdout.buffer.write(await workspaces.content(thread, kept))
            return 0
    except Failure as error:
        raise Refused(error.message) from None
    found = artifacts(thread, listing)
    if as_json:
        print(json.dumps({"thread": thread, "checkpoint": record.sequence, "files": found}, indent=2))
        return 0
    table = Table(title=f"Files of {escape(thread)} at checkpoint {record.sequence}", title_justify="left")
    for name in ("path", "bytes", "sha256"):
        table.add_column(name, justify="right" if name == "bytes" else "left", overflow="fold")
    for file in found:
        table.add_row(escape(file["path"]), str(file["bytes"]), file["sha256"][:12])
    Console(emoji=False).print(table)
    return 0
