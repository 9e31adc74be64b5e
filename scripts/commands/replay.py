"""`perdure replay RUN|FILE…|--open`: recorded histories against today's code, with no call to anything."""

import dataclasses
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from scripts.commands.running import DONE, NO, Refused, plain, run
from workers.client import connect, converter_of
from workers.divergence import Place, diverging
from workers.histories import Unreadable, check, executions, matching, read_history
from workers.open_runs import OPEN
from workers.replaying import Replayed, histories_of
from workers.replaying import replay as replayed
from workers.settings import read_settings

STORE = ("payload ", "the store ")
"""How a fault begins that is the store's, and none of the code: see `workers.storage`."""


@dataclass(frozen=True)
class Told:
    """What is said of one history: `fault` is None where today's code goes on with it."""

    run: str
    run_id: str | None
    events: int
    fault: str | None
    place: Place | None = None

    def view(self) -> dict[str, Any]:
        """As JSON."""
        return {**dataclasses.asdict(self), "ok": self.fault is None}


def replay(
    what: Annotated[list[str] | None, typer.Argument(metavar="RUN|FILE…", help="workflow ids, history files")] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="all runs that a list filter finds")] = None,
    every: Annotated[bool, typer.Option("--open", help="all open runs")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """Replay runs with the code of today, calling nothing: would this code go on with them?

    RUN is a workflow id; all its executions are replayed. FILE is what `temporal workflow show -o json` prints, or the
    Web UI's download (not decoded). Exit code 1 when one does not replay.
    """
    if not what and query is None and not every:
        raise typer.BadParameter("name runs or files, or give --query or --open", param_hint="RUN|FILE…")
    run(_replay(what or [], query, every, as_json))


async def _replay(what: list[str], query: str | None, every: bool, as_json: bool) -> int:
    converter = converter_of(read_settings(), worker=True)
    told = []
    async for name, run_id, history in _histories(what, query, every):
        one = history if isinstance(history, Told) else await look(name, history, converter, run_id)
        told.append(one)
        if not as_json:
            _print(one)
    if as_json:
        json.dump([one.view() for one in told], sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        print(f"{len(told)} histories, {sum(one.fault is not None for one in told)} that this code would not continue")
    return NO if any(one.fault is not None for one in told) else DONE


async def look(name: str, history: WorkflowHistory, converter: DataConverter, run_id: str | None = None) -> Told:
    """Replays one history; where it does not fit, says where. `run_id`: where it is known, since the history of a run
    that was reset names the one before."""

    async def only() -> AsyncIterator[WorkflowHistory]:
        yield history

    try:
        await check(history, converter)
    except Unreadable as error:
        return Told(name, None, len(history.events), str(error))
    [found] = [one async for one in replayed(only(), converter)]
    return Told(name, run_id or found.run_id, found.events, found.fault, await _where(history, found, converter))


async def _where(history: WorkflowHistory, found: Replayed, converter: DataConverter) -> Place | None:
    if found.fault is None or found.fault.startswith(STORE):
        return None
    return await diverging(history, found, converter)


async def _histories(
    what: list[str], query: str | None, every: bool
) -> AsyncIterator[tuple[str, str | None, WorkflowHistory | Told]]:
    runs = [each for each in what if not is_file(each)]
    for path in (each for each in what if is_file(each)):
        try:
            yield path, None, read_history(Path(path))
        except Unreadable as error:
            yield path, None, Told(path, None, 0, str(error))
    if not runs and query is None and not every:
        return
    client = await connect()
    found: list[tuple[str, str]] = []
    for each in runs:
        try:
            found += await executions(client, each)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise Refused(f"there is no run {each!r}, and no file of that name") from None
    for wanted in [query] * (query is not None) + [OPEN] * every:
        found += [pair async for pair in matching(client, str(wanted))]
    for pair in dict.fromkeys(found):
        async for history in histories_of(client, [pair]):
            yield history.workflow_id, pair[1], history


def is_file(name: str) -> bool:
    """Whether a file is meant and not a run: it is there, or it is named like one."""
    return Path(name).is_file() or name.endswith(".json")


def _print(one: Told) -> None:
    if one.fault is None:
        print(f"{plain(one.run)}: {one.events} events, replays")
        return
    print(f"{plain(one.run)}: {one.events} events, DOES NOT REPLAY")
    if one.place is not None:
        print(f"  {plain(one.place.words())}")
    print(f"  {plain(one.fault)}")
