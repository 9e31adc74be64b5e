"""What an open run waits for, from what the service says of it. No I/O here: records in, one cause out.

The kinds are those of the query `status` (`approval`, `question`, `review`, `message`, `budget`, `bundle`, `store`,
`rate_limit`, `workspace`, `release`, `children`, and of projects `task`, `isolation`, `repository`), and:

    paused         by a person
    model, tool    at work, or failing and tried again
    slots          the workers are there, and none takes the work
    no_worker      nobody polls the queue (for this version)
    task_failing   the code of the workflow itself fails, again and again
    running        between two steps
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.workflow.v1 import PendingActivityInfo, PendingWorkflowTaskInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from workflows.catalog import CLOSE, MODEL_TURN, PARENT_WATCH, PROBE, STILL_OPEN, TOOL_RUN, TOOLS_QUEUE_SUFFIX
from workflows.state import PARKS

PEOPLE = ("approval", "question", "review", "message", "budget", "task", "paused")
PARKED = ("store", "bundle", "workspace", "rate_limit", "release", "isolation", "repository")
HUNG = "the workflow task timed out: a worker took it and did not answer"
"""What the service says of a worker that hangs. The workflow's code may be whole."""
ALWAYS_STUCK = ("task_failing", "no_worker", "slots", *PARKED)
QUIET = timedelta(minutes=10)
"""A model or tool at work for longer than this is worth a look."""
UNTAKEN = timedelta(seconds=15)
"""Work that no live worker has taken for this long."""

Kind = Literal["workflow", "activity"]
Polled = Callable[[str, Kind, str], bool]
"""Whether somebody polls a queue for a kind of task and a build id (`""`: any)."""


@dataclass(frozen=True)
class Cause:
    """What a run waits for, since when, in words, and the command or act that mends it."""

    kind: str
    since: datetime
    detail: str = ""
    remedy: str = ""
    failing: bool = False

    def is_stuck(self, now: datetime, after: timedelta) -> bool:
        """Whether somebody should look: it fails, nobody serves it, or a person has not answered for `after`."""
        if self.failing or self.kind in ALWAYS_STUCK:
            return True
        if self.kind in PEOPLE:
            return now - self.since >= after
        return self.kind in ("model", "tool") and now - self.since > QUIET


@dataclass(frozen=True)
class Seen:
    """What visibility says of a run. `digest`: of its bundle's manifest, where it says so; `build`: the version that it
    goes on with; `rescue`: another one that is current and has workers; `asked`: the run itself said it, as it has no
    search attributes."""

    workflow_id: str
    run_id: str
    queue: str
    started: datetime
    status: str = ""
    waiting_on: Sequence[str] = ()
    since: datetime | None = None
    bundle: str = ""
    digest: str = ""
    turn: int = 0
    cost_usd: float = 0.0
    problems: Sequence[str] = ()
    build: str = ""
    rescue: str = ""
    asked: bool = False


def from_visibility(seen: Seen, polled: Polled) -> Cause | None:
    """The cause, where visibility alone tells it: a run that waits for people on a queue that is served, and one that
    has work to do on a queue that is not."""
    since = seen.since or seen.started
    if seen.problems:
        return None
    if not polled(seen.queue, "workflow", seen.build):
        return _nobody(seen, seen.queue, since) if seen.build or seen.status in ("", "running") else None
    if seen.status == "paused":
        return Cause("paused", since, "paused by a person", remedy("paused", seen))
    if seen.status != "waiting" or not seen.waiting_on:
        return None
    kind = next((kind for kind in seen.waiting_on if kind in PEOPLE), seen.waiting_on[0])
    others = [other for other in seen.waiting_on if other != kind]
    return Cause(kind, since, f"and {', '.join(others)}" if others else "", remedy(kind, seen))


def from_description(
    seen: Seen, described: DescribeWorkflowExecutionResponse, polled: Polled, failure: str = ""
) -> Cause:
    """The cause, with what the service says of the run's pending work. `failure`: of its last workflow task."""
    if described.HasField("pending_workflow_task"):
        found = _task(seen, described.pending_workflow_task, polled, failure)
        if found is not None:
            return found
    if seen.problems:
        return _task_failing(seen, seen.since or seen.started, failure)
    found = from_visibility(seen, lambda *_: True)
    if found is not None:
        return found
    pending, since = described.pending_activities, seen.since or seen.started
    causes = [_activity(seen, each, polled) for each in pending if not _watches(each)]
    if causes:
        return min(causes, key=lambda cause: (not cause.failing, cause.kind in ("model", "tool"), cause.since))
    if seen.status == "parked" and seen.waiting_on:
        kind = seen.waiting_on[0]
        return Cause(kind, since, "parked", remedy(kind, seen), failing=True)
    watched = sum(_watches(each) and each.activity_type.name != PARENT_WATCH.name for each in pending)
    if children := watched + len(described.pending_children):
        return Cause("children", since, f"{children} of them")
    return Cause("running", since, "between two steps")


def _watches(pending: PendingActivityInfo) -> bool:
    """Whether it only waits for another run to end: it fails while that is open, and so it should."""
    return pending.last_failure.application_failure_info.type == STILL_OPEN


def _task(seen: Seen, task: PendingWorkflowTaskInfo, polled: Polled, failure: str) -> Cause | None:
    since = time_of(task.original_scheduled_time) or time_of(task.scheduled_time) or seen.started
    if task.attempt > 1 and failure:
        return _task_failing(seen, since, failure)
    if task.state != PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED:
        return None
    if not polled(seen.queue, "workflow", seen.build):
        return _nobody(seen, seen.queue, since)
    if datetime.now(UTC) - since > UNTAKEN:
        return Cause("slots", since, "no worker takes its workflow task", remedy("slots", seen), failing=True)
    return None


def _task_failing(seen: Seen, since: datetime, failure: str) -> Cause:
    kind = "slots" if failure == HUNG else "task_failing"
    return Cause(kind, since, failure, remedy(kind, seen), failing=True)


def _nobody(seen: Seen, queue: str, since: datetime) -> Cause:
    if seen.build and not queue.endswith(TOOLS_QUEUE_SUFFIX):
        return Cause("no_worker", since, f"no worker for build {seen.build}", remedy("no_version", seen), True)
    return Cause("no_worker", since, f"nobody polls the task queue {queue}", remedy("no_worker", seen), True)


def _activity(seen: Seen, pending: PendingActivityInfo, polled: Polled) -> Cause:
    name = pending.activity_type.name
    scheduled = time_of(pending.scheduled_time) or seen.started
    kind = {MODEL_TURN.name: "model", TOOL_RUN.name: "tool"}.get(name, "running")
    queue = pending.activity_options.task_queue.name or _queue_of(seen, name)
    waits = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    if waits and not polled(queue, "activity", ""):
        return _nobody(seen, queue, scheduled)
    if pending.HasField("last_failure"):
        return _failing(seen, pending, kind)
    if waits and datetime.now(UTC) - scheduled > UNTAKEN:
        said = f"{name}: no slot of a worker is free, or the queue's rate limit holds it back"
        return Cause("slots", scheduled, said, remedy("slots", seen), failing=True)
    if name == PROBE.name and seen.waiting_on:
        return Cause(seen.waiting_on[0], seen.since or scheduled, "parked", remedy(seen.waiting_on[0], seen), True)
    return Cause(kind, time_of(pending.last_started_time) or scheduled, f"{name} at work")


def _failing(seen: Seen, pending: PendingActivityInfo, kind: str) -> Cause:
    failure = pending.last_failure
    parked = PARKS.get(failure.application_failure_info.type)
    kind = parked[0] if parked else kind
    since = time_of(pending.scheduled_time) or seen.started
    ended = pending.state != PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    if kind not in ("model", "tool") or (pending.attempt > 2 and ended) or pending.attempt > 3:
        said = f"attempt {pending.attempt}: {failure.message[:500]}"
        return Cause(kind, since, said, remedy(kind, seen), failing=True)
    return Cause(kind, since, f"attempt {pending.attempt}, after: {failure.message[:200]}", remedy(kind, seen))


def _queue_of(seen: Seen, name: str) -> str:
    return seen.queue + TOOLS_QUEUE_SUFFIX if name in (TOOL_RUN.name, CLOSE.name) else seen.queue


def time_of(stamp: Any) -> datetime | None:
    """A protobuf time; None for one that is not set."""
    return stamp.ToDatetime(UTC) if stamp.seconds else None


def remedy(kind: str, seen: Seen) -> str:
    """The command or act that mends a cause."""
    run = seen.workflow_id
    others = "make a build that has workers current: perdure deploy, from its code"
    if seen.rescue:
        move = f"temporal workflow update-options -w {run} --versioning-override-behavior auto_upgrade"
        others = f"move the run to {seen.rescue}, the current build: {move}"
    if seen.status == "parked":
        return f"status.problem says it: temporal workflow query -w {run} --type status"
    return {
        **dict(PARKS.values()),
        "store": PARKS["StoreUnavailable"][1],
        "approval": "perdure pending",
        "question": "perdure pending",
        "review": "perdure pending",
        "message": f'temporal workflow update execute -w {run} --name message --input \'{{"text": …, "by": …}}\'',
        "budget": f"temporal workflow query -w {run} --type pending",
        "children": f"temporal workflow query -w {run} --type pending",
        "paused": f"temporal workflow update execute -w {run} --name resume --input '{{\"by\": …}}'",
        "no_worker": f"perdure worker  (with PERDURE_TASK_QUEUE={seen.queue})",
        "no_version": f"PERDURE_BUILD_ID={seen.build} perdure worker  (from that build's code), or {others}",
        "task_failing": f"mend the workflow code and deploy it; the run goes on. Look: temporal workflow show -w {run}",
        "slots": "more workers, or more slots (PERDURE_SLOTS_…); look at the workers' /live",
        "model": "look at the model server and its key; the run goes on by itself",
        "tool": f"temporal workflow describe -w {run}",
        "task": "perdure pending",
    }.get(kind, "")
