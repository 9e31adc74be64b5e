"""Sub-agents, seen from the outside: starting one, finding out how it ended, and whether its parent is still there.

A child is a run of its own that the service knows by an id made from its parent's operation, and that id is refused a
second time: an attempt that comes again, or a parent that was reset, finds the child that is there. What it was started
with is in its memo. These activities ask the service for what it knows; nothing is taken from what a child says.
"""

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.canonical import digest, preview
from activities.context import tool_message
from activities.tools.errors import ToolError
from activities.world import World
from workflows.catalog import CHILD_END, CHILD_WATCH, PARENT_WATCH, STILL_OPEN
from workflows.child_records import ChildEnd, ChildRequest, ChildStart
from workflows.forks import PARENT
from workflows.lineage import DELEGATE, Child, Limits, Parent
from workflows.records import Usage

MEMO = "perdure_child"
SOON = 5.0
"""Seconds that a child which has said that it ends is waited for."""
STRUCTURED_BYTES = 16_384
Outcome = tuple[str, str, dict[str, Any]]
_OPEN = (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW)


class StillOpen(ApplicationError):
    """What is waited for has not come: the server asks again later."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is open", type=STILL_OPEN, category=ApplicationErrorCategory.BENIGN)


async def start_child(client: Client, wanted: ChildStart, queue: str, attributes: bool) -> Child:
    """Starts the child, or finds it started. Raises ToolError where its id belongs to another run."""
    child = await find_child(client, wanted)
    if child is not None:
        return child
    limits = Limits.model_validate(wanted.given.get("budget", {}))
    kept = {
        "asked": wanted.asked or _asked(wanted),
        "limits": limits.model_dump(exclude_none=True),
        "on_close": wanted.on_close,
    }
    pairs = [SearchAttributePair(PARENT, wanted.parent.workflow_id)] if attributes else []
    try:
        handle = await client.start_workflow(
            "AgentRun",
            {**wanted.given, "parent": wanted.parent.model_dump(mode="json")},
            id=wanted.child,
            task_queue=queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo={MEMO: kept},
            search_attributes=TypedSearchAttributes(pairs),
            static_summary=preview(f"for {wanted.parent.workflow_id}: {wanted.given.get('goal', '')}", 200),
        )
    except WorkflowAlreadyStartedError:
        child = await find_child(client, wanted)
        if child is None:
            raise
        return child
    run = handle.first_execution_run_id or handle.result_run_id or ""
    return Child(workflow_id=wanted.child, run=run, limits=limits, on_close=wanted.on_close)


async def find_child(client: Client, wanted: ChildStart) -> Child | None:
    """The child, if it was started. Raises ToolError where its id belongs to another run."""
    described = await _described(client, wanted.child)
    if described is None:
        return None
    kept = await described.memo_value(MEMO, None, type_hint=dict)
    if not kept or kept.get("asked") not in (wanted.asked or _asked(wanted), _asked(wanted)):
        raise ToolError(f"the workflow id {wanted.child} belongs to another run; no sub-agent was started")
    run = described.raw_info.first_run_id or described.run_id
    return Child(workflow_id=wanted.child, run=run, limits=kept["limits"], on_close=kept["on_close"])


def started(tool: str, body: dict[str, Any]) -> Child | None:
    """The child that a recorded result of `delegate` names; None for other tools, and for a person's word instead."""
    if tool != DELEGATE or body.get("role") != "tool":
        return None
    try:
        return Child.model_validate_json(str(body.get("result", body["text"])))
    except ValidationError:
        return None


def _asked(wanted: ChildStart) -> str:
    """What makes two starts the same one; the budget depends on what was left at the time."""
    named = ("goal", "bundle", "inputs", "output_schema", "workspace")
    asked = {name: value for name, value in wanted.given.items() if name in named}
    return digest([asked, wanted.parent.workflow_id, wanted.parent.run])


@dataclass(frozen=True)
class Ended:
    """How a child ended: its status, the same in words, the result of one that has one, and what it cost."""

    status: str
    said: str
    result: dict[str, Any]
    used: dict[str, float]
    usage: Usage


async def end_of(client: Client, child: Child, last: dict[str, float]) -> Ended:
    """How the child ended; `last` is what it said last of its costs. Raises StillOpen while it has not ended."""
    described = await _ended(client, child)
    status, said, result = await _outcome(client, described)
    used, usage = _costs(result) if result else await _asked_costs(client, described, last)
    return Ended(status, said, result, used, usage)


def short(structured: Any) -> Any:
    """A structured answer; None for one that is too long to travel."""
    return None if len(json.dumps(structured)) > STRUCTURED_BYTES else structured


class ChildActivities:
    """Asks the service about runs that belong together."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=CHILD_WATCH.name)
    async def watch(self, request: ChildRequest) -> bool:
        """True when the child has ended; fails while it has not."""
        described = await _described(activity.client(), request.child.workflow_id)
        if _is(described, request.child.run):
            raise StillOpen(request.child.workflow_id)
        return True

    @activity.defn(name=PARENT_WATCH.name)
    async def watch_parent(self, parent: Parent) -> bool:
        """Fails while the parent is open. When it has ended without its child, asks for the child's cancellation."""
        described = await _described(activity.client(), parent.workflow_id)
        if _is(described, parent.run):
            raise StillOpen(parent.workflow_id)
        own = activity.client().get_workflow_handle(str(activity.info().workflow_id))
        await own.cancel(reason=f"{parent.workflow_id}, which this run works for, has ended")
        return True

    @activity.defn(name=CHILD_END.name)
    async def end(self, request: ChildRequest) -> ChildEnd:
        """How the child ended, as an answer for the model. Fails while it has not ended."""
        ended = await end_of(activity.client(), request.child, request.last)
        note = f"[{request.edited_by} edited the arguments of this call]\n" if request.edited_by else ""
        text = self._world.redact(f"{note}{ended.said}")
        body = tool_message(request.call, request.tool, text)
        answer = await self._world.entries.put(request.thread, body, text)
        return ChildEnd(
            status=ended.status,
            answer=answer,
            used=ended.used,
            usage=ended.usage,
            structured=short(ended.result.get("structured")),
        )


async def _described(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    """What the service knows of the newest execution under an id; None when it knows none."""
    try:
        return await client.get_workflow_handle(workflow_id).describe(rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


def _is(described: WorkflowExecutionDescription | None, run: str) -> bool:
    """Whether it is open, and the very run that is meant, not one started later under the same id."""
    return described is not None and described.status in _OPEN and _same(described, run)


def _same(described: WorkflowExecutionDescription | None, run: str) -> bool:
    return described is not None and (described.raw_info.first_run_id or run) == run


async def _ended(client: Client, child: Child) -> WorkflowExecutionDescription | None:
    for _ in range(int(SOON / 0.1)):
        described = await _described(client, child.workflow_id)
        if not _is(described, child.run):
            return described if _same(described, child.run) else None
        await asyncio.sleep(0.1)
    raise StillOpen(child.workflow_id)


async def _outcome(client: Client, described: WorkflowExecutionDescription | None) -> Outcome:
    """The status, the answer in words, and the result where there is one."""
    if described is None:
        return "gone", "Error: the service does not know the sub-agent any more; how it ended cannot be found out", {}
    who = f"the sub-agent {described.id}"
    if described.status != WorkflowExecutionStatus.COMPLETED:
        return await _failure(client, described, who)
    handle = client.get_workflow_handle(described.id, run_id=described.run_id, result_type=dict)
    result: dict[str, Any] = await handle.result(follow_runs=False)
    told = {"status": result["status"], "output": result["output"], "structured": result["structured"]}
    told |= {"reason": result["reason"], "files": [each["path"] for each in result["artifacts"]]}
    told = {"sub_agent": described.id, **{name: value for name, value in told.items() if value not in (None, [])}}
    return str(result["status"]), json.dumps(told, ensure_ascii=False), result


async def _failure(client: Client, described: WorkflowExecutionDescription, who: str) -> Outcome:
    status = described.status
    if status == WorkflowExecutionStatus.CANCELED:
        return "cancelled", f"Error: {who} was cancelled", {}
    if status == WorkflowExecutionStatus.TERMINATED:
        return "terminated", f"Error: {who} was terminated by an operator", {}
    if status == WorkflowExecutionStatus.TIMED_OUT:
        return "timed_out", f"Error: {who} ran into its time limit", {}
    why = ""
    try:
        await client.get_workflow_handle(described.id, run_id=described.run_id).result(follow_runs=False)
    except WorkflowFailureError as error:
        cause = error.cause
        why = f": {cause.type}: {cause.message}" if isinstance(cause, ApplicationError) else f": {cause}"
    return "failed", f"Error: {who} failed{why}", {}


def _costs(result: dict[str, Any]) -> tuple[dict[str, float], Usage]:
    return dict(result.get("used", {})), Usage.model_validate(result["usage"])


async def _asked_costs(
    client: Client, described: WorkflowExecutionDescription | None, last: dict[str, float]
) -> tuple[dict[str, float], Usage]:
    """What a run used that left no result: what it says when it is asked, else what it said last."""
    if described is not None:
        handle = client.get_workflow_handle(described.id, run_id=described.run_id)
        try:
            status = await handle.query("status", rpc_timeout=timedelta(seconds=10), result_type=dict)
            return dict(status["budget"]["used"]), Usage.model_validate(status["usage"])
        except RPCError as error:
            if activity.info().attempt < 3:
                raise
            activity.logger.warning("%s does not say what it used: %s", described.id, error.message)
    tokens, cost = int(last.get("tokens", 0)), last.get("cost_usd", 0.0)
    return last, Usage(input_tokens=tokens, cost_usd=cost, estimated=True)
