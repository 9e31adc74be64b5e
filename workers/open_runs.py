"""The open runs of a namespace and what each waits for: one list, and a look at those that it cannot explain."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, TaskQueueType, WorkerVersioningMode, WorkflowExecutionStatus
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client
from temporalio.client import WorkflowExecution as Row
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from workers.attributes import missing_search_attributes
from workers.causes import HUNG, Cause, Kind, Seen, from_description, from_visibility, time_of
from workers.codec import decode_failure
from workflows.catalog import TOOLS_QUEUE_SUFFIX
from workflows.showing import BUNDLE, BUNDLE_DIGEST, COST, SINCE, STATUS, TURN, WAITING_ON

OPEN = "ExecutionStatus = 'Running' AND WorkflowType IN ('AgentRun', 'ProjectRun')"
"""Visibility's words for the open runs and projects of a namespace."""

SHOWN = (
    "approval",
    "question",
    "review",
    "message",
    "budget",
    "bundle",
    "store",
    "rate_limit",
    "workspace",
    "release",
    "children",
    "task",
    "isolation",
    "repository",
)
"""The kinds that visibility can be asked for."""
KINDS = (*SHOWN, "parked", "paused", "model", "tool", "slots", "no_worker", "task_failing", "running")
"""All that a run may wait for, and `parked`: one that stands still until somebody mends what it needs."""
PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
VERSION = SearchAttributeKey.for_keyword("TemporalWorkerDeploymentVersion")
BEHAVIOR = SearchAttributeKey.for_keyword("TemporalWorkflowVersioningBehavior")
AT_ONCE = 64
POLL_SECONDS = 75.0
"""A long poll lasts a minute; a poller not seen for longer is gone."""
ANSWER_SECONDS = 10.0
"""How long a run may take to say what it waits for."""
_LAST_EVENTS = 20


@dataclass(frozen=True)
class OpenRun:
    """A run, and what it waits for."""

    seen: Seen
    cause: Cause


class Queues:
    """Who polls which task queue, asked once each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pollers: dict[tuple[str, Kind], list[PollerInfo]] = {}
        self._current: dict[tuple[str, Kind], str] = {}

    async def look(self, queues: Iterable[str]) -> None:
        """Asks for the pollers of these queues, and of the tools' queues beside them."""
        wanted: list[tuple[str, Kind]] = []
        for queue in sorted(set(queues)):
            wanted += [(queue, "workflow"), (queue, "activity"), (queue + TOOLS_QUEUE_SUFFIX, "activity")]
        await asyncio.gather(*(self.ask(queue, kind) for queue, kind in wanted if (queue, kind) not in self._pollers))

    async def ask(self, queue: str, kind: Kind) -> None:
        """Asks for the pollers of one queue."""
        types = {
            "workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        }
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=types[kind]
        )
        answer = await self._client.workflow_service.describe_task_queue(request, timeout=timedelta(seconds=10))
        self._pollers[queue, kind] = list(answer.pollers)
        self._current[queue, kind] = answer.versioning_info.current_deployment_version.build_id

    def placed(self, seen: Seen) -> Seen:
        """The run with the build that it goes on with: one that is pinned to none goes on with the current one of its
        queue, where there is one; and with the one that a pinned run could be moved to."""
        current = self._current.get((seen.queue, "workflow"), "")
        build = seen.build or current
        rescue = current if current != build and self.polled(seen.queue, "workflow", current) else ""
        return replace(seen, build=build, rescue=rescue)

    def polled(self, queue: str, kind: Kind, build: str) -> bool:
        """Whether somebody polls; True for a queue that nobody asked about."""
        return bool(self.pollers(queue, kind, build)) or (queue, kind) not in self._pollers

    def pollers(self, queue: str, kind: Kind, build: str = "") -> list[str]:
        """The identities of those who poll now, of one build or any."""
        return list(self.last_polls(queue, kind, build))

    def last_polls(self, queue: str, kind: Kind, build: str = "") -> dict[str, datetime]:
        """When the last poll of each of them began."""
        oldest = datetime.now(UTC) - timedelta(seconds=POLL_SECONDS)
        polls = [
            (poller.identity, poller.last_access_time.ToDatetime(UTC))
            for poller in self._pollers.get((queue, kind), [])
            if not build or _build_of(poller) == build
        ]
        return {identity: at for identity, at in sorted(polls, key=lambda poll: poll[1]) if at > oldest}

    def builds(self, queue: str, kind: Kind) -> Counter[str]:
        """How many poll now, by their build id; empty for those without one."""
        oldest = datetime.now(UTC) - timedelta(seconds=POLL_SECONDS)
        now = [one for one in self._pollers.get((queue, kind), []) if one.last_access_time.ToDatetime(UTC) > oldest]
        return Counter(build for build, _ in {(_build_of(one), one.identity) for one in now})


def _build_of(poller: PollerInfo) -> str:
    """Empty for an unversioned worker, which has a build id of its own making."""
    options = poller.deployment_options
    versioned = options.worker_versioning_mode == WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    return options.build_id if versioned else ""


async def open_runs(client: Client, waiting: str | None = None) -> list[OpenRun]:
    """Every open run with its cause, those of `waiting` only where it is given. Runs without search attributes are
    asked themselves. Raises RPCError."""
    narrow = waiting in SHOWN and not await missing_search_attributes(client)
    found = [seen async for seen in listed(client, waiting if narrow else None)]
    queues = Queues(client)
    await queues.look(seen.queue for seen in found)
    found = [queues.placed(seen) for seen in found]
    gate = asyncio.Semaphore(AT_ONCE)

    async def explain(seen: Seen) -> OpenRun | None:
        cause = from_visibility(seen, queues.polled)
        if cause is not None:
            return OpenRun(seen, cause)
        async with gate:
            return await _look(client, seen, queues)

    runs = [run for run in await asyncio.gather(*map(explain, found)) if run is not None]
    return [
        run
        for run in runs
        if waiting is None
        or waiting in (run.cause.kind, *run.seen.waiting_on)
        or (waiting == "parked" and run.seen.status == "parked")
    ]


async def listed(client: Client, waiting: str | None = None) -> AsyncIterator[Seen]:
    """Every open run as visibility has it. Raises RPCError."""
    query = OPEN
    if waiting in SHOWN:
        query += f" AND (PerdureWaitingOn = '{waiting}' OR PerdureStatus IS NULL)"
    async for row in client.list_workflows(query, page_size=1000):
        yield _seen(row)


def _seen(row: Row) -> Seen:
    found = row.typed_search_attributes
    pinned = (found.get(BEHAVIOR) or "") == "Pinned"
    return Seen(
        workflow_id=row.id,
        run_id=row.run_id,
        queue=row.task_queue,
        started=row.start_time,
        status=found.get(STATUS) or "",
        waiting_on=found.get(WAITING_ON) or (),
        since=found.get(SINCE),
        bundle=found.get(BUNDLE) or "",
        digest=found.get(BUNDLE_DIGEST) or "",
        turn=found.get(TURN) or 0,
        cost_usd=found.get(COST) or 0.0,
        problems=found.get(PROBLEMS) or (),
        build=(found.get(VERSION) or "").rpartition(":")[2] if pinned else "",
    )


async def _look(client: Client, seen: Seen, queues: Queues) -> OpenRun | None:
    """The run with the cause out of a description, and of its own words where it has no search attributes; None for a
    run that has ended meanwhile."""
    execution = WorkflowExecution(workflow_id=seen.workflow_id, run_id=seen.run_id)
    try:
        described = await client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution),
            timeout=timedelta(seconds=20),
        )
    except RPCError as error:
        return OpenRun(seen, Cause("running", seen.since or seen.started, f"cannot be described: {error.message}"))
    if described.workflow_execution_info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
        return None
    for pending in described.pending_activities:
        await decode_failure(client.data_converter, pending.last_failure)
    failure = ""
    if seen.problems or described.pending_workflow_task.attempt > 1:
        failure = await _last_failure(client, execution)
    cause = from_description(seen, described, queues.polled, failure)
    if seen.status or cause.failing or described.HasField("pending_workflow_task"):  # or it has yet to say so
        return OpenRun(seen, cause)
    told = await _told(client, seen)
    if told is None:
        return OpenRun(seen, replace(cause, detail=f"{cause.detail}; it does not say what it waits for"))
    return OpenRun(told, from_description(told, described, queues.polled, failure))


async def _told(client: Client, seen: Seen) -> Seen | None:
    """What visibility would say of a run, from the run itself; None where nobody answers."""
    handle, soon = client.get_workflow_handle(seen.workflow_id, run_id=seen.run_id), timedelta(seconds=ANSWER_SECONDS)
    try:
        status = await handle.query("status", rpc_timeout=soon)
        pending = await handle.query("pending", rpc_timeout=soon) if set(status["waiting_on"]) - {"message"} else []
        asked = [each["asked_at"] for each in pending if each["owner"] == seen.workflow_id]
        return replace(
            seen,
            status=str(status["status"]),
            waiting_on=list(status["waiting_on"]),
            since=min(map(datetime.fromisoformat, asked)) if asked else await _quiet_since(client, seen),
            bundle=status.get("bundle") or "",
            turn=status.get("turn") or 0,
            cost_usd=status["usage"]["cost_usd"],
            asked=True,
        )
    except Exception:  # noqa: BLE001 - a codec may raise anything, and one run must not hide the others
        return None


async def _quiet_since(client: Client, seen: Seen) -> datetime | None:
    """The time of the last event of a run: it has waited since then at least."""
    execution = WorkflowExecution(workflow_id=seen.workflow_id, run_id=seen.run_id)
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=1
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(
        request, timeout=timedelta(seconds=ANSWER_SECONDS)
    )
    return time_of(answer.history.events[0].event_time) if answer.history.events else None


async def _last_failure(client: Client, execution: WorkflowExecution) -> str:
    """Why the last workflow task failed, out of the last events."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=execution, maximum_page_size=_LAST_EVENTS
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(
        request, timeout=timedelta(seconds=20)
    )
    for event in answer.history.events:
        await decode_failure(client.data_converter, event.workflow_task_failed_event_attributes.failure)
        if text := _failed(event):
            return text
    return ""


def _failed(event: HistoryEvent) -> str:
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return _words(event.workflow_task_failed_event_attributes.failure) or "the workflow task failed"
    if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
        return HUNG
    return ""


def _words(failure: Failure | None) -> str:
    """What a failure says, with its causes: some say no more than that there is one."""
    said = []
    while failure is not None:
        said.append(failure.message)
        failure = failure.cause if failure.HasField("cause") else None
    return ": ".join(text for text in said if text)
