"""`perdure pending`: what all runs and projects ask of people; and finding the run that a code belongs to."""

import asyncio
import contextlib
import difflib
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count
from textwrap import indent
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from scripts.commands.running import Refused, plain, run
from workers.attributes import missing_search_attributes
from workers.client import connect
from workers.open_runs import OPEN
from workers.storage import PayloadUnavailable
from workflows.requests import KEPT

Item = dict[str, Any]
Silent = dict[str, str]
"""Runs of which it is not known what they ask, and why."""
AT_ONCE = 20
QUERY_SECONDS = 10
SHORTER = {
    "approval": "perdure approve {0}, perdure deny {0}",
    "question": "perdure answer {0} TEXT",
    "review": "perdure resolve {0} happened|not_happened|give_up",
}
"""The same decisions by this command."""
WAITING = f"{OPEN} AND (PerdureStatus IS NULL OR PerdureWaitingOn IS NOT NULL)"


def pending(
    run_id: Annotated[str | None, typer.Option("--run", help="Of this run only (its workflow id)")] = None,
    kind: Annotated[str | None, typer.Option(help="approval, question, review or budget only")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """Show what waits for people, in all runs, with the commands that decide it."""
    if kind not in (None, "approval", "question", "review", "budget"):
        raise typer.BadParameter(f"{kind!r} is not one of: approval, question, review, budget", param_hint="--kind")
    run(_pending(run_id, kind, as_json))


async def _pending(run_id: str | None, kind: str | None, as_json: bool) -> int:
    client = await connect()
    items, silent = await of_run(client, run_id) if run_id is not None else await of_all(client)
    items = [item for item in items if kind in (None, item["kind"])]
    for workflow_id, why in silent.items():
        print(f"perdure: {plain(workflow_id)}: {plain(why)}", file=sys.stderr)
    if as_json:
        print(json.dumps(items, ensure_ascii=False, indent=1))
    else:
        for item in items:
            show(item)
        if not items:
            asked = "Nothing waits for people" if not silent else "Nothing is known to wait for people"
            console().print(f"{asked}.")
    return 1 if silent else 0


class NoAnswer(Refused):
    """The run is there, and its code cannot say what it waits for."""


async def of_run(client: Client, workflow_id: str) -> tuple[list[Item], Silent]:
    """The open requests of one run, and the run itself if nobody answers for it. Raises Refused for no such run, and
    NoAnswer."""
    try:
        found = await _asked_by(client, workflow_id)
    except WorkflowQueryFailedError as error:
        raise NoAnswer(f"{workflow_id}: {error}") from None
    except RPCError as error:
        if "not found" in error.message:
            raise Refused(f"there is no run {workflow_id!r}") from None
        return [], {workflow_id: "no worker answered; is one running?"}
    except PayloadUnavailable as error:
        return [], {workflow_id: f"what it asks is kept in another store: {error}"}
    return found, {}


async def _asked_by(client: Client, workflow_id: str) -> list[Item]:
    """The items of the query `pending`, also those beyond the ones that one answer holds."""
    handle, patience = client.get_workflow_handle(workflow_id), timedelta(seconds=QUERY_SECONDS)
    page: list[Item] = await handle.query("pending", rpc_timeout=patience)
    found = {(item["owner"], item["code"]): item for item in page}
    for skip in count(0, KEPT):
        known = len(found)
        if len(page) < KEPT:
            break
        try:
            page = await handle.query("pending", {"skip": skip}, rpc_timeout=patience)
        except WorkflowQueryFailedError:  # by a worker of an earlier release
            break
        found.update({(item["owner"], item["code"]): item for item in page})
        if skip and len(found) == known:
            break
    return list(found.values())


async def of_all(client: Client, every: bool = False) -> tuple[list[Item], Silent]:
    """The open requests of all runs, oldest first, and the runs of which they are not known. Where the namespace has
    the search attributes, only runs that wait are asked, unless `every` one is wanted: visibility lags behind."""
    limit, narrow = asyncio.Semaphore(AT_ONCE), not every and not await missing_search_attributes(client)

    async def one(workflow_id: str) -> tuple[list[Item], Silent]:
        async with limit:
            try:
                return await of_run(client, workflow_id)
            except NoAnswer as error:
                return [], {workflow_id: f"{str(error).partition(': ')[2]} (perdure runs --stuck says more)"}
            except Refused:  # it has ended
                return [], {}

    ids = [workflow_id async for workflow_id in _ids(client, WAITING if narrow else OPEN)]
    answers = await asyncio.gather(*(one(workflow_id) for workflow_id in ids))
    items: dict[tuple[str, str], Item] = {}
    for workflow_id, (found, _) in zip(ids, answers, strict=True):
        for item in found:  # the owner's own word before that of those above it, which is cut
            key = (item["owner"], item["code"])
            items[key] = item if item["owner"] == workflow_id else items.get(key, item)
    silent = {run: why for _, without in answers for run, why in without.items()}
    return sorted(items.values(), key=lambda item: (str(item["asked_at"]), str(item["code"]))), silent


async def _ids(client: Client, query: str) -> AsyncIterator[str]:
    async for found in client.list_workflows(query):
        yield found.id


async def find_by_code(client: Client, code: str, run_id: str | None) -> Item:
    """The request of that code: the open one, else the decided one, to whose run a repeated decision is sent. Raises
    Refused when there is none, or several without `run_id`."""
    wanted, silent = code.strip().upper(), Silent()
    for every in (False, True) if run_id is None else (True,):
        items, silent = await of_run(client, run_id) if run_id is not None else await of_all(client, every)
        matching = [item for item in items if item["code"] == wanted]
        if len(matching) == 1:
            return await _own_word(client, matching[0], run_id)
        if matching:
            owners = ", ".join(str(item["owner"]) for item in matching)
            raise Refused(f"several runs have a request {wanted}: say which with --run: {owners}")
    if run_id is not None and silent:
        raise Refused(f"{run_id}: no worker answered; is one running? Nothing was sent")
    owner = run_id if run_id is not None else await _decided_by(client, wanted)
    if owner is not None:
        return {"code": wanted, "owner": owner, "arguments": None}
    more = f"; not known of: {', '.join(list(silent)[:5])}" if silent else ""
    raise Refused(
        f"no run that is open has a request {wanted}; it may have ended (a run that has: --run WORKFLOW-ID){more}"
    )


async def _own_word(client: Client, item: Item, run_id: str | None) -> Item:
    """The request as its owner has it, whole: those above it list a copy whose arguments may be cut, and so does the
    owner itself where a list would be too long."""
    if run_id in (None, item["owner"]) and not isinstance(item["arguments"], str):
        return item
    owner = client.get_workflow_handle(str(item["owner"]))
    try:
        wait = timedelta(seconds=QUERY_SECONDS)
        items: list[Item] = await owner.query("pending", {"code": item["code"]}, rpc_timeout=wait)
    except WorkflowQueryFailedError:  # by a worker of an earlier release
        items, _ = await of_run(client, str(item["owner"]))
    except RPCError:
        return item
    return next((own for own in items if (own["owner"], own["code"]) == (item["owner"], item["code"])), item)


async def _decided_by(client: Client, code: str) -> str | None:
    """The open run in whose decision log the code stands."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def decided(workflow_id: str) -> bool:
        async with limit:
            with contextlib.suppress(RPCError, WorkflowQueryFailedError):
                handle = client.get_workflow_handle(workflow_id)
                log = await handle.query("decisions", rpc_timeout=timedelta(seconds=QUERY_SECONDS))
                return any(entry["code"] == code and entry["decision"] != "rejected" for entry in log)
        return False

    ids = [workflow_id async for workflow_id in _ids(client, OPEN)]
    found = zip(ids, await asyncio.gather(*map(decided, ids)), strict=True)
    return next((workflow_id for workflow_id, its in found if its), None)


def show(item: Item) -> None:
    """One request, for a terminal."""
    out = console()
    until = f", until {item['deadline']}" if item["deadline"] else ""
    code, kind, owner = (escape(plain(item[name])) for name in ("code", "kind", "owner"))
    out.print(f"[bold yellow]{code}[/] {kind} of [bold]{owner}[/]{escape(plain(until))}")
    out.print(_quoted(item["question"]))
    reason, arguments = item.get("reason"), item["arguments"]
    if reason and item["kind"] != "question" and reason not in item["question"]:
        out.print(_quoted(f"It asks because: {reason}", style="dim"))
    if item["kind"] == "question" and isinstance(arguments, dict):  # its text stands above; mostly it has no more
        arguments = {name: value for name, value in arguments.items() if name != "question" and value is not None}
    if arguments:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, indent=1)
        tool = f"{plain(item['tool'])}: " if item["tool"] else ""
        out.print(_quoted(f"{tool}{text}"))
    for line in item["commands"].values():
        print(f"  {plain(line)}")  # as it is, unwrapped, to be copied
    if item["kind"] in SHORTER:
        out.print(Text(f"  or: {SHORTER[item['kind']].format(code)}", style="dim"))
    print()


def _quoted(text: str, style: str = "") -> Text:
    """What an agent may have worded, behind a bar: no line of it looks like a command of ours."""
    return Text(indent(plain(text), "  │ ", lambda _: True), style=style)


def show_diff(before: Any, after: Any) -> None:
    """What an edit changed, line by line."""
    old, new = (
        json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).splitlines() for value in (before, after)
    )
    for line in list(difflib.unified_diff(old, new, "asked", "runs", lineterm=""))[2:]:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console().print(Text(plain(line), style=style))


def console() -> Console:
    """Where people read: colours in a terminal only."""
    return Console(emoji=False, highlight=False, soft_wrap=True)
