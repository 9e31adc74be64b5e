"""Gates: the named states in which a run stands still, and goes on by itself or by a word.

A pause, a reached limit, an interactive run between two messages, and a failure that somebody can mend.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from workflows import catalog
from workflows.display import enough, reached_text
from workflows.messages import decode_json
from workflows.people import People
from workflows.records import Problem, Usage
from workflows.requests import Request
from workflows.rollover import RollOver
from workflows.side_records import ProbeRequest
from workflows.state import PARKS
from workflows.waiting import Waiting

T = TypeVar("T")

MISFIT = "IncompatiblePayload"
PARKED_MISFITS = "incompatible-payload-parks"
"""The patch since which a record that a worker cannot read parks the run. Needed while histories of runs that failed by
it are replayed: by queries of closed runs, for as long as the namespace keeps them."""

WHOLE_OPENINGS = "openings-end-before-a-rollover"
"""The patch since which a run that is parked while it is opened, or takes over what a fork begins with, continues as
new only when that is done."""

IDLE_ENDS = "idle-ends-after-a-rollover"
"""The patch since which a run that was idle before its rollover, and is not any more, says so."""

PAUSES_HOLD = "pauses-hold-what-was-parked"
"""The patch since which what was parked is not done again while the run is paused."""

LONGEST_PAUSE = 3600
"""Seconds between two looks at a cause that seems gone each time and is not."""


class Held(Exception):
    """What was to be done again is not to be done now: the run was paused while it was parked."""


class Gates(People, Waiting):
    """Where a run waits. A rollover that is asked for meanwhile ends the wait with RollOver."""

    async def may_go_on(self) -> bool:
        """Waits out a pause and a reached limit. False when nobody raised the limit in time."""
        self.look_at_history()
        while True:
            await self.wait(lambda: self.state.paused is None, "resume")
            self.tick()
            reached = self.state.reached()
            if not reached:
                break
            asked = [request for request in self.state.requests.open() if request.kind == "budget"]
            request = asked[0] if asked else self._ask_for_budget(reached)
            left = (request.deadline or workflow.now()) - workflow.now()
            try:
                await self.wait(lambda: not self.state.reached(), "budget", max(left, timedelta(0)))
            except TimeoutError:
                self.expire(request)
                return False
        if self.rolling:
            raise RollOver
        return True

    def _ask_for_budget(self, reached: dict[str, float]) -> Request:
        request = self.request("budget", reached_text(reached), None, self.state.opened.budget_wait)
        request.raise_to = enough(reached, self.state.needed_now())
        self.publish()
        return request

    async def more_to_do(self) -> bool:
        """After an answer: what people said meanwhile is read; an interactive run waits for the next message."""
        if self.state.idle and workflow.patched(IDLE_ENDS):
            self.state.idle = False
        if self.state.opened.interactive and not self.state.inbox and not self.state.finishing:
            self.state.idle = True
            self.publish()
            await self.wait(lambda: bool(self.state.inbox) or self.state.finishing, "message")
            self.state.idle = False
            self.publish()
        return bool(self.state.inbox)

    async def unpaused(self, act: Callable[[], Awaitable[T]]) -> T:
        """Does it, as `mendable` does; anew when a pause that held it is over."""
        while True:
            try:
                return await self.mendable(act, pausable=True)
            except Held:
                await self.wait(lambda: self.state.paused is None, "resume")

    async def mendable(self, act: Callable[[], Awaitable[T]], pausable: bool = False) -> T:
        """Does it; parks the run while the cause of a failure is one that somebody can mend, then does it again.
        `pausable`: raises Held instead where the run was paused meanwhile."""
        for tries in count():
            try:
                return await act()
            except ActivityError as error:
                problem = problem_of(error)
                if problem is None:
                    if (spent := spent_of(error)).requests:
                        self.state.usage, self.state.asking = self.state.usage.plus(spent), None
                    raise
            await self._park(problem, tries)
            if pausable and self.state.paused is not None and workflow.patched(PAUSES_HOLD):
                raise Held
        raise AssertionError("unreachable: the loop has no end")

    async def _park(self, problem: Problem, tries: int) -> None:
        self.state.problem, self.retry_now = problem, False
        if problem.type == MISFIT:  # nothing tells when another release is there, so it is tried again for ever
            self.look_at_history()
        self.publish()
        opened = self.state.opening is not None and (self.state.parent is not None or not self.state.opening.ancestry)
        can_roll = opened or not workflow.patched(WHOLE_OPENINGS)
        probe = asyncio.create_task(self._probe(problem, tries))
        try:
            await workflow.wait_condition(lambda: probe.done() or self.retry_now or (self.rolling and can_roll))
        finally:  # no await here: a run that is put out of the cache while it is parked ends in this place
            probe.cancel()
            self.state.problem, self.retry_now = None, False
        await asyncio.gather(probe, return_exceptions=True)
        if self.rolling and can_roll and self.state.opening is not None:
            raise RollOver
        self.publish()

    async def _probe(self, problem: Problem, tries: int) -> None:
        if tries:  # all looked well the last time and was not: without a pause that would fill the history
            pause = min(2**tries, LONGEST_PAUSE)
            await workflow.sleep(timedelta(seconds=pause), summary=f"wait for the {PARKS[problem.type][0]}")
        if problem.retry_after is not None:
            await workflow.sleep(timedelta(seconds=problem.retry_after), summary="the model server's rate limit")
            return
        opening = self.state.opening
        kinds = {"BundleUnavailable": "bundle", "CheckpointDamaged": "checkpoint", "WorkspaceUnavailable": "workspace"}
        kind = kinds.get(problem.type, "store")
        request = ProbeRequest(
            kind=kind,
            thread=opening.thread if opening else "probe.probe",
            head=self.state.head,
            bundle=opening.bundle.digest if opening else None,
            branch=self.state.branch,
            files=self.state.files,
            entries=[item.ref.sha256 for item in self.state.new if item.ref is not None],
        )
        await catalog.PROBE.run(request, summary=f"wait for the {kind}")


def type_of(error: ActivityError) -> str:
    """The failure's type, for example `ToolFailed`, or `TimeoutError` where no attempt came back."""
    cause = error.cause
    return (cause.type or "") if isinstance(cause, ApplicationError) else type(cause).__name__


def problem_of(error: ActivityError) -> Problem | None:
    """The problem that parks the run; None for a failure that ends it."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in PARKS:
        return None
    if cause.type == MISFIT and not workflow.patched(PARKED_MISFITS):
        return None  # a run that met it before it was a reason to park has failed here
    wait = decode_json(cause.details[0]) if cause.type == "RateLimited" and cause.details else None
    return Problem(type=cause.type, message=cause.message, remedy=PARKS[cause.type][1], retry_after=wait)


def spent_of(error: ActivityError) -> Usage:
    """What the model's requests of an activity cost that failed for good: no turn will count them."""
    cause = error.cause
    for detail in cause.details if isinstance(cause, ApplicationError) else ():
        try:
            return Usage.model_validate(decode_json(detail)["usage"])
        except (ValueError, TypeError, KeyError):  # another detail: a text, a number
            continue
    return Usage()


def failure_of(error: ActivityError) -> ApplicationError:
    """The run's own failure: the activity's type and message, without its stack."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        lasting = "ModelUnavailable" if cause.type == "ModelTrouble" else cause.type  # its last attempt was that
        return ApplicationError(cause.message, type=lasting, non_retryable=True)
    return ApplicationError(f"{error.activity_type} failed: {cause}", type="ModelUnavailable", non_retryable=True)
