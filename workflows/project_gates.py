"""Where a project waits: for people, for more of a limit, for what somebody can mend. All are named states."""

import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.gates import LONGEST_PAUSE, problem_of
from workflows.parking import PARKS
from workflows.project_handlers import ProjectHandlers
from workflows.project_records import Role
from workflows.project_state import SAID
from workflows.records import Problem
from workflows.rollover import RollOver
from workflows.waiting import Waiting

T = TypeVar("T")

NO_LIMIT_WITHOUT_WORK = "no-limit-without-work"
"""The patch since which a project that waits for more of a limit goes on when people have decided on all tasks."""

ROLES: dict[str, Role] = {"plan": "initializer", "work": "coder", "grade": "evaluator"}


class ProjectGates(ProjectHandlers, Waiting):
    """A rollover that is asked for while it waits ends the wait with RollOver. `stays`: the worker's version cannot be
    left by a rollover."""

    stays: bool

    async def ask(self, task_id: str) -> None:
        """A task was rejected too often: waits for a person's word on it."""
        state = self.project
        state.asked = task_id
        asked = self.ask_about(state.course.task(task_id))
        try:
            await self.wait(lambda: state.course.task(task_id).status != "failed", f"a decision on {task_id}"[:100])
            self.expire(asked, "the project goes on")
        finally:
            if not self.rolling:
                state.asked = None
        self.publish()

    async def may_go_on(self) -> bool:
        """Waits out a pause and a reached limit. False when nobody raised the limit in time."""
        state = self.project
        self._look_at_history()
        if state.problem is not None:
            await self._word()
        await self.wait(lambda: state.paused is None, "resume")
        if state.reached() and state.course.next().kind in ROLES:
            now = workflow.now()
            state.budget_until = state.budget_until or now + timedelta(seconds=state.opened.budget_wait)
            asked = self.ask_for_budget(state.reached(), state.budget_until)
            ends = workflow.patched(NO_LIMIT_WITHOUT_WORK)
            try:
                left = max(state.budget_until - now, timedelta(0))
                await self.wait(
                    lambda: not state.reached() or (ends and state.course.next().kind not in ROLES), "budget", left
                )
                self.expire(asked, "the project goes on")
            except TimeoutError:
                self.expire(asked, "the limit was not raised in time")
                return False
        state.budget_until = None
        if self.rolling:
            raise RollOver
        return True

    async def stumble(self, kind: str, why: str) -> None:
        """A plan or a grade that cannot be used: tried again, and too often in a row, by a person's word only."""
        state = self.project
        state.stumbles, state.refused = state.stumbles + 1, why[:SAID]
        if state.stumbles < state.course.terms.tries:
            return
        state.problem, self.resumed = Problem(type=kind, message=why[:SAID], remedy=PARKS[kind][1]), False
        await self._word()

    async def _word(self) -> None:
        """Waits for a person's word on a problem, also in the execution after a rollover."""
        state = self.project
        before = state.standing()
        asked = self.ask_for_word(state.problem.message if state.problem else "")
        self.publish()
        await workflow.wait_condition(lambda: self.resumed or state.standing() != before or self.rolling)
        if not self.resumed and state.standing() == before:
            raise RollOver
        self.expire(asked, "the project goes on")
        state.problem, state.stumbles = None, 0
        self.publish()

    async def mendable(self, act: Callable[[], Awaitable[T]]) -> T:
        """Does it; parks the project while the cause of a failure is one that somebody can mend, then does it again:
        after `resume`, or by itself after ever longer pauses."""
        for tries in count():
            try:
                return await act()
            except ActivityError as error:
                problem = problem_of(error)
                if problem is None:
                    raise
            self.project.problem, self.resumed = problem, False
            self.publish()
            pause = timedelta(seconds=min(2 ** (tries + 1), LONGEST_PAUSE))
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self.resumed, timeout=pause, timeout_summary=f"wait for the {PARKS[problem.type][0]}"
                )
            self.project.problem = None
            self.publish()
        raise AssertionError("unreachable: the loop has no end")

    def _look_at_history(self) -> None:
        info, opening = workflow.info(), self.project.opened
        self.rolling = (
            self.rolling
            or info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= opening.history_events
            or info.get_current_history_size() >= opening.history_bytes
            or self.many_updates()
            or (info.is_target_worker_deployment_version_changed() and not self.stays)
        )
