"""What only the Temporal service knows of a run: where it stands, what it asks, its decisions, its relatives."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError

from activities.children import MEMO as CHILD
from workers.client import Unreachable, connect
from workflows.keys import thread_name

PATIENCE = timedelta(seconds=5)


async def client_or_none() -> Client | None:
    """A client, where a service answers soon."""
    try:
        return await asyncio.wait_for(connect(), 3)
    except (Unreachable, TimeoutError):
        return None


async def live_of(client: Client, workflow_id: str, thread: str, *, whole: bool = True) -> dict[str, Any] | None:
    """The newest execution of that id as a `status` query gives it, with `pending`, and for the `whole` with
    `decisions` and the runs that name it as their parent; None where the id now belongs to another start."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        described = await handle.describe(rpc_timeout=PATIENCE)
    except RPCError:
        return None
    if thread_name(workflow_id, described.raw_description.workflow_execution_info.first_run_id) != thread:
        return None
    execution = described.status.name.lower() if described.status else "unknown"
    live: dict[str, Any] = {"status": execution, "execution": execution, "run_id": described.run_id}
    if described.status == WorkflowExecutionStatus.COMPLETED:
        live |= await _result(client, workflow_id, described.run_id)
    else:
        for name, into in (("status", None), ("pending", "pending"), *[("decisions", "decisions")] * whole):
            found = await ask(client, workflow_id, name)
            if found is not None:
                live |= found if into is None else {into: found}
    if execution != "running":
        live |= {"pending": [], "waiting_on": []}
    return {**live, "relatives": await relatives(client, workflow_id) if whole else []}


async def ask(client: Client, workflow_id: str, query: str) -> Any:
    """A query's answer; None where nobody gives one."""
    try:
        return await client.get_workflow_handle(workflow_id).query(query, rpc_timeout=PATIENCE)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None


async def _result(client: Client, workflow_id: str, run_id: str) -> dict[str, Any]:
    with contextlib.suppress(RPCError, WorkflowFailureError, TimeoutError):
        result = await asyncio.wait_for(client.get_workflow_handle(workflow_id, run_id=run_id).result(), 10)
        if isinstance(result, dict):
            kept = {name: result.get(name) for name in ("status", "output", "reason", "decisions")}
            return {**kept, "head": result.get("checkpoint")}
    return {}


async def relatives(client: Client, workflow_id: str) -> list[dict[str, Any]]:
    """The runs that were forked from this one, or are its children."""
    found: list[dict[str, Any]] = []
    name = workflow_id.replace("'", "\\'")
    with contextlib.suppress(RPCError):  # a namespace without the search attribute
        async for row in client.list_workflows(f"PerdureParent = '{name}'", rpc_timeout=PATIENCE):
            relation = "child" if CHILD in row.raw_info.memo.fields else "fork"  # a sub-agent is no child of Temporal's
            found.append(
                {"workflow_id": row.id, "relation": relation, "status": row.status.name.lower() if row.status else ""}
            )
    return found


def place_of(live: dict[str, Any] | None) -> tuple[str, int] | None:
    """Branch and number of the checkpoint at which the run itself says that it stands."""
    head = (live or {}).get("head")
    return None if not head else (str(head["key"]).split("/")[-2], int(head["sequence"]))
