"""`perdure show RUN`: a run as a tree, out of the store, with what Temporal knows of it beside."""

import dataclasses
import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from activities.errors import Failure
from activities.store import open_store
from scripts.commands.running import DONE, Refused, plain, run
from scripts.drawing import decision_lines, draw, left_lines
from scripts.following import follow as followed
from scripts.living import client_or_none, live_of, place_of
from scripts.records import thread_of
from scripts.tree import Tree, tree_of
from workers.client import connect
from workers.settings import read_settings


def show(
    which: Annotated[str, typer.Argument(metavar="RUN", help="a workflow id, or <workflow id>.<start>")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="stay, and show what happens until it ends")] = False,
    last: Annotated[int | None, typer.Option(min=0, help="of each session the last turns only")] = None,
    full: Annotated[bool, typer.Option("--full", help="texts, arguments and answers whole")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, whole; with --follow a line an event")] = False,
) -> None:
    """Show a run: sessions, turns, calls, decisions, effects, forks, and what a reset left behind.

    The store alone is enough. Where Temporal answers too, it adds where the run stands and what it asks.
    """
    run(_follow(which, as_json) if follow else _show(which, last, full, as_json))


async def _show(which: str, last: int | None, full: bool, as_json: bool) -> int:
    store = open_store(read_settings().store)
    thread = await thread_of(store, which)
    client = await client_or_none()
    live = await live_of(client, which, thread) if client is not None else None
    try:
        tree = await tree_of(store, thread, place_of(live), (live or {}).get("decisions") or [])
    except Failure as error:
        raise Refused(f"{error.message}. `perdure verify {which}` checks all of it") from None
    workflow_id = which if live else thread.rpartition(".")[0]
    if as_json:
        json.dump(view(tree, live, workflow_id), sys.stdout, ensure_ascii=False, indent=1)
        print()
        return DONE
    # A tree does not wrap softly. Where no terminal says how wide it is, a command stays on its line.
    out = Console(emoji=False, highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)
    out.print(draw(tree, live, workflow_id, last, full))
    for line in decision_lines((live or {}).get("decisions") or []):
        out.print(Text(plain(line), style="dim"))
    return DONE


async def _follow(which: str, as_json: bool) -> int:
    store, client = open_store(read_settings().store), await connect()
    return await followed(client, store, which, as_json)


def view(tree: Tree, live: dict[str, Any] | None, workflow_id: str) -> dict[str, Any]:
    """As JSON."""
    body = dataclasses.asdict(tree)
    body["other"] = [effect.model_dump() for effect in tree.other]
    for told, left in zip(body["left"], tree.left, strict=True):
        told["means"] = left_lines(left, workflow_id)
    return {"workflow_id": workflow_id, **body, "live": live}
