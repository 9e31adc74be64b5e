"""Every command a workflow can issue: its name on the wire, input, output, time limits and retries, and no other place.

The names are pinned apart from the Python names: they are in the histories of runs that are alive.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

from workflows import (
    child_records,
    fork_records,
    lineage,
    notices,
    project_records,
    records,
    session_records,
    side_records,
    undoing_records,
    upgrade_records,
)

TOOLS_QUEUE_SUFFIX = "-tools"
"""Tools run on a queue of their own, so that only tool workers need credentials."""

TOOL_ATTEMPTS = 5
"""Attempts of one tool call, worker deaths included."""

LEASE_GRACE = 5.0
"""Seconds by which a claim's lease outlives the tool's deadline."""

STILL_OPEN = "StillOpen"
"""The type of failure by which an activity waits for another run: it is tried again until that has ended."""

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


def _retry(first: float, longest: float, attempts: int) -> RetryPolicy:
    start, longer = timedelta(seconds=first), timedelta(seconds=longest)
    return RetryPolicy(initial_interval=start, maximum_interval=longer, maximum_attempts=attempts)


@dataclass(frozen=True)
class Command(Generic[I, O]):
    """One activity: what goes in, what comes out, and who gives up when.

    `wait` is the whole time of one attempt; `beat` the silence after which its worker counts as dead; `retry` what the
    server does after a failure that may be retried; `within` the whole time with all attempts and queueing.
    `settle`: on cancellation wait until the activity has said how it ended, since it may have an effect.
    """

    name: str
    takes: type[I]
    gives: type[O]
    wait: timedelta
    retry: RetryPolicy
    beat: timedelta | None = None
    within: timedelta | None = None
    settle: bool = False

    def lasting(self) -> "Command[I, O]":
        """The same without an end to its tries, for where nobody waits for an answer on the other side."""
        return replace(self, within=None)

    async def run(self, *args: Any, summary: str, wait: timedelta | None = None, queue: str | None = None) -> O:
        """Schedules the activity and gives its result. Raises ActivityError when it failed for good."""
        types = workflow.ActivityCancellationType
        result: O = await workflow.execute_activity(
            self.name,
            args=args,
            result_type=self.gives,
            task_queue=queue,
            start_to_close_timeout=wait or self.wait,
            schedule_to_close_timeout=self.within,
            heartbeat_timeout=self.beat,
            retry_policy=self.retry,
            cancellation_type=types.WAIT_CANCELLATION_COMPLETED if self.settle else types.TRY_CANCEL,
            summary=summary,
        )
        return result

    async def run_local(self, *args: Any, summary: str) -> O:
        """The same inside the workflow task: one event, but queries and updates of the run wait meanwhile."""
        result: O = await workflow.execute_local_activity(
            self.name,
            args=args,
            result_type=self.gives,
            start_to_close_timeout=self.wait,
            retry_policy=self.retry,
            summary=summary,
        )
        return result


OPEN = Command(
    name="run.open",
    takes=records.OpenRequest,
    gives=records.Opening,
    wait=timedelta(seconds=30),
    retry=_retry(0.2, 5, 6),
)
MODEL_TURN = Command(
    name="model.turn",
    takes=records.TurnRequest,
    gives=records.Turn,
    wait=timedelta(minutes=15),
    beat=timedelta(seconds=10),
    retry=_retry(1, 60, 10_000),  # it gives up by itself (`unavailable_after`); this is for one that kills its worker
)
TOOL_READ = Command(
    name="tool.read",
    takes=records.ToolRequest,
    gives=records.ToolAnswer,
    wait=timedelta(seconds=1),  # the longest that queries and updates may have to wait
    retry=_retry(0.1, 1, 1),
)
TOOL_RUN = Command(
    name="tool.run",
    takes=records.ToolRequest,
    gives=records.ToolAnswer,
    wait=timedelta(minutes=2),
    beat=timedelta(seconds=5),
    retry=_retry(1, 30, TOOL_ATTEMPTS),
    settle=True,
)
JUDGE = Command(
    name="message.judge",
    takes=side_records.JudgeRequest,
    gives=side_records.Verdict,
    wait=timedelta(seconds=7),  # a schema may be checked for 5, and says so then
    within=timedelta(seconds=10),
    retry=_retry(0.2, 1, 2),
)
NOTIFY = Command(
    name="people.notify",
    takes=notices.NoticeRequest,
    gives=notices.Noticed,
    wait=timedelta(seconds=60),
    within=timedelta(hours=1),
    retry=_retry(2, 300, 20),
)
CLOSE = Command(
    name="run.close",
    takes=session_records.ClosingRequest,
    gives=session_records.Closing,
    wait=timedelta(seconds=60),
    retry=_retry(0.5, 5, 5),
)
FORK = Command(
    name="run.fork",
    takes=fork_records.ForkRequest,
    gives=fork_records.Forked,
    wait=timedelta(minutes=10),
    beat=timedelta(seconds=10),
    retry=_retry(0.2, 5, 6),
)
EDIT = Command(
    name="run.edit",
    takes=fork_records.EditRequest,
    gives=fork_records.Edited,
    wait=timedelta(minutes=2),
    beat=timedelta(seconds=10),
    within=timedelta(minutes=5),
    retry=_retry(0.2, 5, 3),
)
HANDOFF = Command(
    name="session.handoff",
    takes=session_records.HandoffRequest,
    gives=session_records.Handoff,
    wait=timedelta(minutes=15),
    beat=timedelta(seconds=10),
    retry=_retry(1, 60, 10_000),  # as that of a turn
)
UPGRADE = Command(
    name="bundle.upgrade",
    takes=upgrade_records.UpgradeRequest,
    gives=upgrade_records.Upgrade,
    wait=timedelta(seconds=30),
    within=timedelta(minutes=5),
    retry=_retry(0.5, 10, 0),
)
PROBE = Command(
    name="run.probe",
    takes=side_records.ProbeRequest,
    gives=bool,
    wait=timedelta(seconds=30),
    retry=_retry(1, 60, 0),  # without end: it is how a parked run waits, with no history growth and no worker held
)
SPENT = Command(
    name="model.spent",
    takes=side_records.SpentRequest,
    gives=records.Usage,
    wait=timedelta(seconds=10),
    retry=_retry(0.5, 5, 5),  # a run that ends waits for it, and ends without it
)
EFFECT_DOUBT = Command(
    name="effect.doubt",
    takes=records.ToolRequest,
    gives=records.ToolAnswer,
    wait=timedelta(seconds=60),
    beat=timedelta(seconds=5),
    retry=_retry(1, 30, 100),  # it waits and writes to the ledger; together these wait out the longest lease
)
EFFECT_PLAN = Command(
    name="effect.plan",
    takes=undoing_records.UndoPlanRequest,
    gives=undoing_records.UndoPlan,
    wait=timedelta(seconds=60),
    within=timedelta(minutes=5),
    retry=_retry(0.5, 10, 0),
)
EFFECT_UNDO = Command(
    name="effect.undo",
    takes=undoing_records.UndoRequest,
    gives=records.ToolAnswer,
    wait=timedelta(minutes=2),
    beat=timedelta(seconds=5),
    retry=_retry(1, 30, TOOL_ATTEMPTS),
    settle=True,
)
CHILD_WATCH = Command(
    name="child.watch",
    takes=child_records.ChildRequest,
    gives=bool,
    wait=timedelta(seconds=30),
    retry=_retry(2, 60, 0),  # fails while the child is open: the same way to wait as `run.probe`
)
CHILD_END = Command(
    name="child.end",
    takes=child_records.ChildRequest,
    gives=child_records.ChildEnd,
    wait=timedelta(seconds=60),
    retry=_retry(0.5, 30, 0),
)
PROJECT_OPEN = Command(
    name="project.open",
    takes=project_records.ProjectRequest,
    gives=project_records.ProjectOpening,
    wait=timedelta(minutes=10),
    beat=timedelta(seconds=10),
    retry=_retry(0.5, 10, 6),
)
PROJECT_SESSION = Command(
    name="project.session",
    takes=project_records.SessionRequest,
    gives=lineage.Child,
    wait=timedelta(seconds=60),
    retry=_retry(0.5, 30, 0),
    settle=True,
)
PROJECT_ENDED = Command(
    name="project.ended",
    takes=project_records.SessionEndRequest,
    gives=project_records.SessionEnd,
    wait=timedelta(seconds=60),
    retry=_retry(0.5, 30, 0),  # fails while the session is open
)
PROJECT_PLAN = Command(
    name="project.plan",
    takes=project_records.PlanRequest,
    gives=project_records.Plan,
    wait=timedelta(seconds=60),
    retry=_retry(0.5, 10, 6),
)
PROJECT_CHECK = Command(
    name="project.check",
    takes=project_records.CheckRequest,
    gives=project_records.Checked,
    wait=timedelta(minutes=30),
    beat=timedelta(seconds=10),
    retry=_retry(1, 30, 0),  # it runs in a copy, so it may be repeated for as long as workers die
)
PROJECT_KEEP = Command(
    name="project.keep",
    takes=project_records.KeepRequest,
    gives=project_records.Kept,
    wait=timedelta(minutes=10),
    beat=timedelta(seconds=10),
    retry=_retry(1, 30, 0),
    settle=True,
)
PARENT_WATCH = Command(
    name="parent.watch",
    takes=lineage.Parent,
    gives=bool,
    wait=timedelta(seconds=30),
    retry=_retry(15, 120, 0),
)


def tool_wait(timeout: float) -> timedelta:
    """One attempt at a tool, in the longest case: an older lease waited out, a look-up, the tool, a look-up, the rest
    of its own lease, a last look-up, and the outcome written to a store that fails for a while."""
    return timedelta(seconds=5 * timeout + 2 * LEASE_GRACE + 45)
