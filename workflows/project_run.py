"""ProjectRun: a relay of agent runs. What comes next is a function of the tasks (`workflows.tasks`); every session is
an `AgentRun` of its own, started as a sub-agent is, with the files that the session before left.

Each line here is one that open projects depend on: it changes only by patch.

    project_showing <- project_asks <- project_handlers <- project_gates <- project_steps <- project_run
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows import catalog
from workflows.agent_run import branches_off
from workflows.endings import UNREAD
from workflows.forks import mint
from workflows.gates import failure_of
from workflows.project_board import bundles_view
from workflows.project_records import ProjectRequest
from workflows.project_state import ProjectState
from workflows.project_steps import ProjectSteps
from workflows.receiving import given
from workflows.rollover import RollOver, carried, continue_with, misfit, version_now


@workflow.defn(name="ProjectRun")
class ProjectRun(ProjectSteps):
    """One project, from a brief to tasks that all pass."""

    misfit: ApplicationError | None

    @workflow.init
    def __init__(self, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.project, self.misfit = ProjectState(branch=mint()), None
        self.telling = []
        self.ended, self.resumed, self.rolling, self.updates, self.shown = None, False, False, 0, ()
        self.stays = False
        try:  # here, since messages that wait for this execution are handled before `run` begins
            found = None if rest else carried(value, ProjectState)
            if found is not None:
                fresh, self.project = self.project.branch, found
                if branches_off(workflow.info()):
                    self.project.branch = fresh
                self.stays = found.rolled_from is not None and found.rolled_from == version_now()
                self.project.rolled_from = None
        except ValidationError as error:
            self.misfit = misfit(error)
        workflow.register_random_seed_callback(self._reseeded)

    @workflow.run
    async def run(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        """The result: how it ended, the tasks, and where the files are. Fails with a named failure."""
        try:
            await self._begin(value, rest)
            return await self._live()
        except RollOver:
            await workflow.wait_condition(workflow.all_handlers_finished)
            self._continue()
        except (ActivityError, ApplicationError, asyncio.CancelledError) as error:
            await self.stop_session()
            self.ended = "cancelled" if is_cancelled_exception(error) else "failed"
            self.publish()
            if isinstance(error, ActivityError) and self.ended == "failed":
                raise failure_of(error) from None
            raise

    async def _begin(self, value: RawValue | None, rest: Sequence[RawValue]) -> None:
        info = workflow.info()
        if self.misfit is not None:
            raise self.misfit
        if self.project.opening is None:
            request = ProjectRequest(
                workflow_id=info.workflow_id,
                first_execution_run_id=info.first_execution_run_id,
                payloads=len(given(value, rest)),
                cron=bool(info.cron_schedule),
            )
            queue = info.task_queue + catalog.TOOLS_QUEUE_SUFFIX
            self.project.book_opening(
                await self.mendable(
                    lambda: catalog.PROJECT_OPEN.run(request, value, summary="open the project", queue=queue)
                )
            )
        for asked in self.project.requests.open():
            self.tell(asked)
        self.publish()

    async def _live(self) -> dict[str, Any]:
        course = self.project.course
        while True:
            self._end_if_cancelled()
            if self.project.session is None:
                if not await self.may_go_on():
                    return await self._close("budget_exhausted", "the limit was not raised in time")
                step = course.next()
                if step.kind == "end":
                    return await self._close("completed")
                if step.kind == "verify":
                    await self.verify(step.tasks)
                    continue
                if step.kind == "ask":
                    await self.ask(step.tasks[0])
                    continue
                await self.begin_session(step)
            self._end_if_cancelled()
            if self.project.session is not None:
                await self.end_session()

    async def _close(self, status: str, reason: str | None = None) -> dict[str, Any]:
        state = self.project
        if state.course.tasks:
            await self.keep()
        self._end_if_cancelled()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if status == "completed" and state.course.next().kind != "end":
            return await self._live()  # somebody spoke meanwhile
        for said in state.inbox:
            self.note(
                "rejected", said.by, UNREAD, f"the project ended ({status}) before a session read it: {said.text}"
            )
        self.ended = status
        self.publish()
        opening = state.opened
        return {
            "status": status,
            "reason": reason,
            "tasks": [task.model_dump() for task in state.course.tasks],
            "commit": state.commit,
            "repository": opening.repository,
            "branch": opening.target if opening.repository else None,
            "workspace": state.files.model_dump(mode="json"),
            "thread": opening.thread,
            "sessions": state.sessions,
            "usage": state.usage.model_dump(),
            "used": state.used_now(),
            "bundles": bundles_view(state),
            "log": [entry.model_dump() for entry in state.log],
            **({"parent": opening.parent.model_dump()} if opening.parent else {}),
        }

    def _end_if_cancelled(self) -> None:
        """An activity that settles takes a cancellation up, and ends as if there had been none."""
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    def _continue(self) -> NoReturn:
        self.project.rolled_from = version_now()
        continue_with(self.project)

    def _reseeded(self, seed: int) -> None:
        """A reset: sessions that are other ones than before get names of this branch."""
        self.project.branch = f"{seed & 0xFFFFFFFF:08x}"
