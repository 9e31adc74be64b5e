"""`perdure effects`: what runs did to the world, out of the ledger, and what to do about what nobody knows."""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.effect_records import IN_DOUBT
from activities.ledger import Ledger
from activities.store import Store, open_store
from scripts.commands.running import Refused, plain, run
from workers.client import Unreachable, connect
from workers.settings import read_settings
from workflows.keys import safe_id, thread_name
from workflows.messages import command
from workflows.records import EffectRecord

THREAD = re.compile(r"threads/([^/]+)/([^/]+)/effects/([^/]+)/(prepared|outcome)\.json")


def effects(
    workflow_id: Annotated[str | None, typer.Argument(metavar="RUN", help="a workflow id, or a thread")] = None,
    in_doubt: Annotated[bool, typer.Option("--in-doubt", help="only effects whose outcome is unknown")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show the effects of a run with state, key, age and the command that resolves them; of all runs with --in-doubt.

    Exit code 1 when an effect is in doubt.
    """
    if workflow_id is None and not in_doubt:
        raise typer.BadParameter("give a RUN, or --in-doubt for all runs", param_hint="RUN")
    run(_effects(workflow_id, in_doubt, as_json))


async def _effects(workflow_id: str | None, in_doubt: bool, as_json: bool) -> int:
    store, client = open_store(read_settings().store), await _client()
    found: list[dict[str, Any]] = []
    for thread in await _threads(store, client, workflow_id):
        records = [one for one in await Ledger(store).everything(thread) if not in_doubt or one.status in IN_DOUBT]
        if records:
            found += await _lines(client, thread, records)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, indent=1))
    elif workflow_id is not None and not found and not in_doubt:
        print(f"no effects of {workflow_id!r} in the store {store!r}")
    else:
        _show(found)
    return 1 if any(line["status"] in IN_DOUBT for line in found) else 0


async def _client() -> Client | None:
    """The ledger is in the store: without Temporal only the commands are missing."""
    try:
        return await asyncio.wait_for(connect(), 10)
    except (Unreachable, TimeoutError):
        return None


async def _threads(store: Store, client: Client | None, workflow_id: str | None) -> list[str]:
    """The threads to show: the one that was named, the newest start of a workflow id, or all with an open effect."""
    if workflow_id is None:
        prepared: set[tuple[str, ...]] = set()
        ended: set[tuple[str, ...]] = set()
        for key in await store.keys("threads"):
            if match := THREAD.fullmatch(key):
                (prepared if match[4] == "prepared" else ended).add(match.groups()[:3])
        return sorted({f"{name}.{start}" for name, start, _ in prepared - ended})
    if client is not None:
        try:
            described = await client.get_workflow_handle(workflow_id).describe()
            return [thread_name(workflow_id, described.raw_description.workflow_execution_info.first_run_id)]
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise Unreachable(f"Temporal does not answer: {error.message}") from None
    name, _, start = workflow_id.rpartition(".")
    if name and await store.keys(f"threads/{name}/{start}/effects"):
        return [workflow_id]
    starts = {key.split("/")[2] for key in await store.keys(f"threads/{safe_id(workflow_id)}")} - {"requests"}
    if not starts:
        raise Refused(f"there is no run {workflow_id!r}, neither in Temporal nor in the store {store!r}")
    return sorted(f"{safe_id(workflow_id)}.{start}" for start in starts)


async def _lines(client: Client | None, thread: str, records: Sequence[EffectRecord]) -> list[dict[str, Any]]:
    owner, asked = await _asked(client, thread) if any(r.status in IN_DOUBT for r in records) else (None, {})
    lines = []
    for record in records:
        line = record.model_dump(exclude={"abandoned"}) | {"age_seconds": round(_age(record))}
        if record.status in IN_DOUBT:
            line["resolve"] = asked.get(record.operation_id) or _advice(record, owner)
        elif record.status == "COMMITTED" and not record.operation_id.endswith(":undo") and owner:
            line["resolve"] = {
                "undo": command(owner, "compensate", {"operation_id": record.operation_id, "by": "YOUR-NAME"})
            }
        lines.append(line)
    return lines


async def _asked(client: Client | None, thread: str) -> tuple[str | None, dict[str, dict[str, str]]]:
    """The open run of a thread, and the commands of its open reviews by operation."""
    if client is None:
        return None, {}
    name = thread.rpartition(".")[0]
    async for found in client.list_workflows("ExecutionStatus = 'Running' AND WorkflowType = 'AgentRun'"):
        if safe_id(found.id) != name:
            continue
        described = await client.get_workflow_handle(found.id).describe()
        if thread_name(found.id, described.raw_description.workflow_execution_info.first_run_id) != thread:
            continue
        handle, wait = client.get_workflow_handle(found.id), timedelta(seconds=10)
        try:
            pending = await handle.query("pending", rpc_timeout=wait)
            left = [one["operation_id"] for one in await handle.query("effects", rpc_timeout=wait) if one["abandoned"]]
        except RPCError:
            return found.id, {}
        asks = {one: {"ask": command(found.id, "compensate", {"operation_id": one, "by": "YOUR-NAME"})} for one in left}
        return found.id, asks | {one["operation_id"]: one["commands"] for one in pending if one["kind"] == "review"}
    return None, {}


def _advice(record: EffectRecord, owner: str | None) -> dict[str, str]:
    """What to do where no request is open."""
    if owner is not None and record.operation_id.endswith(":undo"):
        undone = record.operation_id.removesuffix(":undo")
        return {"ask": command(owner, "compensate", {"operation_id": undone, "by": "YOUR-NAME"})}
    if owner is not None:
        return {"wait": f"the run {owner} is at work on it; it recovers by itself, or asks"}
    return {"look": f"its run is not open: look outside for the key {record.idempotency_key}"}


def _age(record: EffectRecord) -> float:
    since = record.committed_at or record.prepared_at
    return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds() if since else 0.0


def _show(lines: list[dict[str, Any]]) -> None:
    console = Console(emoji=False, soft_wrap=True)
    if not lines:
        console.print("no effect is in doubt")
        return
    table = Table("operation", "state", "class", "key", "outside id", "age", box=None)
    for line in lines:
        age = str(timedelta(seconds=line["age_seconds"]))
        key = "same" if line["idempotency_key"] == line["operation_id"] else line["idempotency_key"]
        shown = (line["operation_id"], line["status"], line["effect"], key, line["external_id"] or "", age)
        table.add_row(*(Text(plain(each)) for each in shown))
    console.print(table)
    for line in lines:
        if line["status"] in IN_DOUBT:
            doubt = f"\n{line['operation_id']}: {line['in_doubt'] or 'its outcome is not on record'}"
            console.print(plain(doubt), markup=False)
            for name, text in line["resolve"].items():
                console.print(plain(f"  {name}: {text}"), markup=False, highlight=False)
