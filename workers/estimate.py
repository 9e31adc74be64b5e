"""What durable execution saves, reckoned from real runs.

Without it a run that loses its worker starts again from the beginning. A crash strikes at any moment of a run alike, so
on average half of the run is lost:

    loss of a month  =  runs a month  x  crashes a run  x  cost of a run / 2        (and the same for hours)

The crashes are those that the histories show: attempts and workflow tasks that timed out because their worker was gone.
One that struck while a run only waited left no trace there, and would have cost the run all the same: the loss is at
least what is said.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.client import WorkflowExecution as Row

from workflows.showing import COST

MONTH = timedelta(days=30)
_GONE = (TimeoutType.TIMEOUT_TYPE_HEARTBEAT, TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE)


@dataclass(frozen=True)
class Run:
    """One run, over all its executions. `crashes`: how often its worker was lost."""

    workflow_id: str
    started: datetime
    seconds: float
    cost_usd: float
    crashes: int


@dataclass(frozen=True)
class Estimate:
    """What the runs say together. Money in US dollars, times in seconds."""

    runs: int
    mean_seconds: float
    mean_cost_usd: float
    crashes: int
    crashes_per_run: float
    runs_per_month: float
    lost_usd_per_month: float
    lost_seconds_per_month: float


async def look_at(client: Client, workflow_id: str) -> list[Run]:
    """Every run that was started under an id, oldest first. Raises RPCError."""
    starts: dict[str, list[tuple[Row, int]]] = defaultdict(list)
    rows = [row async for row in client.list_workflows(_named(workflow_id))]
    for row in sorted(rows, key=lambda row: row.start_time):
        handle = client.get_workflow_handle(workflow_id, run_id=row.run_id)
        events = [event async for event in handle.fetch_history_events()]
        if events:
            first = events[0].workflow_execution_started_event_attributes.first_execution_run_id
            starts[first].append((row, crashes_in(events)))
    return [_run(workflow_id, executions) for executions in starts.values()]


def _named(workflow_id: str) -> str:
    escaped = workflow_id.replace("\\", "\\\\").replace("'", "\\'")
    return f"WorkflowId = '{escaped}'"


def _run(workflow_id: str, executions: Sequence[tuple[Row, int]]) -> Run:
    rows = [row for row, _ in executions]
    last, first = rows[-1], rows[0].start_time
    open_still = last.status == WorkflowExecutionStatus.RUNNING
    ended = datetime.now(first.tzinfo) if open_still or last.close_time is None else last.close_time
    cost = max((row.typed_search_attributes.get(COST) or 0.0) for row in rows)
    crashes = sum(count for _, count in executions)
    return Run(workflow_id, first, (ended - first).total_seconds(), cost, crashes)


def crashes_in(events: Sequence[HistoryEvent]) -> int:
    """How often a worker was lost in this history."""
    count = 0
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            count += started.attempt > 1 and _lost(started.last_failure)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            count += _lost(event.activity_task_timed_out_event_attributes.failure)
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
            timed_out = event.workflow_task_timed_out_event_attributes
            count += timed_out.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    return count


def _lost(failure: Failure) -> bool:
    return failure.HasField("timeout_failure_info") and failure.timeout_failure_info.timeout_type in _GONE


def estimate(runs: Sequence[Run], runs_per_month: float | None = None) -> Estimate:
    """The estimate for at least one run. Without `runs_per_month` the pace of these runs is taken."""
    count = len(runs)
    seconds, cost = sum(run.seconds for run in runs) / count, sum(run.cost_usd for run in runs) / count
    crashes = sum(run.crashes for run in runs)
    if runs_per_month is None:
        starts = [run.started for run in runs]
        span = max(max(starts) - min(starts), timedelta(days=1))
        runs_per_month = count * (MONTH / span)
    rate = crashes / count
    return Estimate(
        runs=count,
        mean_seconds=seconds,
        mean_cost_usd=cost,
        crashes=crashes,
        crashes_per_run=rate,
        runs_per_month=runs_per_month,
        lost_usd_per_month=runs_per_month * rate * cost / 2,
        lost_seconds_per_month=runs_per_month * rate * seconds / 2,
    )
