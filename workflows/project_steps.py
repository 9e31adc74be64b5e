"""The steps of a project: a session and what its end means, checks, and the list of tasks in the repository."""

import contextlib
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows import catalog
from workflows.delegation import until_closed
from workflows.project_gates import ROLES, ProjectGates
from workflows.project_records import (
    Checked,
    CheckRequest,
    KeepRequest,
    PlanRequest,
    SessionEnd,
    SessionEndRequest,
    SessionNote,
    SessionRequest,
)
from workflows.project_state import SAID, Session
from workflows.receiving import Source
from workflows.records import Limits, Workspace
from workflows.rollover import RollOver
from workflows.tasks import Step, Task
from workflows.undoing import evicted

Stumble = tuple[str, str]
"""Why a plan or a grade cannot be used: the problem's type, and words."""

PROJECT: Source = {"via": "project", "id": None}
START_COMMANDS = 60
"""Seconds of a check beyond its commands."""
CHECKED_AT_ONCE = 50
"""The most tasks of one check, so that its time limit stays one."""


class ProjectSteps(ProjectGates):
    """One session is at work at a time."""

    async def begin_session(self, step: Step) -> None:
        """Starts the session of a step. What people said goes to it. None is started where a message has changed the
        step, or the limits, while the list of tasks was kept."""
        state = self.project
        if step.kind == "work":
            await self.keep()
        number, said = state.sessions + 1, len(state.inbox)
        grant, spent = state.family.reserve(str(number), Limits(), state.limits, state.used_now(), 1)
        if spent is not None or state.course.next() != step:
            state.family.reserved.clear()
            return
        state.sessions = number
        session = state.session = Session(number=number, role=ROLES[step.kind], task=next(iter(step.tasks), None))
        opening = state.opened
        request = SessionRequest(
            thread=opening.thread,
            branch=state.branch,
            number=session.number,
            role=session.role,
            bundle=getattr(opening.roles, session.role),
            workspace=state.files,
            grant=grant,
            run=workflow.info().first_execution_run_id,
            brief=opening.brief,
            task=state.course.task(session.task) if session.task else None,
            passing=[task.model_copy(update={"reasons": []}) for task in state.passing()],
            refused=state.refused,
            handoff=self._last_word(),
            said=list(state.inbox),
            requester=opening.requester,
        )
        about = f"session {session.number}: {session.role}" + (f" of {session.task}" if session.task else "")
        self.publish()
        child = await self.mendable(lambda: catalog.PROJECT_SESSION.run(request, summary=about[:100]))
        session.child = child
        state.family.adopt(str(session.number), child)
        if session.role != "evaluator":  # it is told too, and who builds has to be
            state.inbox = state.inbox[said:]
        self.publish()

    def _last_word(self) -> str:
        notes = reversed(self.project.handoffs)
        return next((each.said for each in notes if each.role != "evaluator"), self.project.opened.handoff)

    async def end_session(self) -> None:
        """Waits for the end of the session at work, and books what it means. A rollover may come while it waits: the
        next execution goes on waiting."""
        state = self.project
        session = state.session
        assert session is not None
        assert session.child is not None
        child = session.child
        await until_closed(state.family, child, lambda: self.rolling)
        if self.rolling and not state.family.has_ended(child):
            raise RollOver
        report = state.family.reports.get(child.workflow_id)
        request = SessionEndRequest(child=child, role=session.role, last=report.used if report else {})
        end = await self.mendable(
            lambda: catalog.PROJECT_ENDED.run(request, summary=f"end of {child.workflow_id}"[:100])
        )
        book = {"initializer": self._planned, "coder": self._worked, "evaluator": self._graded}[session.role]
        spent, stumble = self._spent(end), await book(session, end)
        state.book_end(session, end)
        state.trim()
        self.publish()
        if stumble is not None and not spent:
            await self.stumble(*stumble)

    async def _planned(self, session: Session, end: SessionEnd) -> Stumble | None:
        state = self.project
        if end.workspace is None:
            self._hand_off(session, end)
            return "PlanRefused", f"the session failed: {end.said}"
        files = end.workspace
        plan = await self.mendable(lambda: catalog.PROJECT_PLAN.run(PlanRequest(workspace=files), summary="the plan"))
        state.workspace = files
        refused = plan.refused
        if not refused:
            try:
                state.course.planned(plan.tasks)
            except ValueError as error:
                refused = str(error)
        self._hand_off(session, end, passing=not refused, reasons=[refused] if refused else [])
        if refused:
            return "PlanRefused", refused
        state.stumbles, state.refused = 0, ""
        await self.keep(everything=True)
        return None

    async def _worked(self, session: Session, end: SessionEnd) -> None:
        state, task = self.project, self.project.course.task(str(session.task))
        if end.workspace is None:
            self._hand_off(session, end, passing=False)
            if task.status == "open":
                state.course.worked(task.id, None, False, f"the session failed: {end.said}")
            return
        checked = await self._checks([task], end.workspace, finished=True)
        why = checked.unfit or checked.broken.get(task.id)
        commit = None if checked.unfit else checked.commit
        if not checked.unfit:
            state.workspace, state.commit = end.workspace, commit or state.commit
        self._hand_off(session, end, commit, why is None, [why] if why else [])
        cut_short = end.status == "budget_exhausted" and self._spent(end)
        if task.status == "open" and not (why and cut_short):  # else it was dropped or decided on meanwhile
            state.course.worked(task.id, commit, why is None, why or "")

    def _spent(self, end: SessionEnd) -> bool:
        """Whether the project's own budget ended the session: then it goes on with the same task when there is more."""
        used = self.project.used_now()
        limits = self.project.limits.model_dump(exclude_none=True)
        return any(used[name] + end.used.get(name, 0) >= limit for name, limit in limits.items())

    async def _graded(self, session: Session, end: SessionEnd) -> Stumble | None:
        state, task = self.project, self.project.course.task(str(session.task))
        if end.grade is None:
            self._hand_off(session, end)
            return "GradeMissing", f"the evaluator of {task.id} gave no grade: {end.said}"
        state.stumbles, state.refused = 0, ""
        self._hand_off(session, end, None, end.grade.passing, end.grade.reasons)
        if task.status == "done":
            state.course.graded(task.id, end.grade.passing, end.grade.reasons)
        return None

    def _hand_off(
        self,
        session: Session,
        end: SessionEnd,
        commit: str | None = None,
        passing: bool | None = None,
        reasons: list[str] | None = None,
    ) -> None:
        now: datetime = workflow.now()
        self.project.book_handoff(
            SessionNote(
                number=session.number,
                role=session.role,
                run=session.child.workflow_id if session.child else "",
                task=session.task,
                status=end.status,
                said=end.said[:SAID],
                commit=commit,
                passing=passing,
                reasons=reasons or [],
                at=now.isoformat(),
                boundary=self.project.keeps,
            )
        )

    async def stop_session(self) -> None:
        """When the project fails or is cancelled: asks the session to cancel, and waits until it has settled."""
        session = self.project.session
        if session is None or session.child is None or evicted():
            return
        with contextlib.suppress(FailureError):  # it has ended, or nobody knows it
            await workflow.get_external_workflow_handle(session.child.workflow_id).cancel()
        with contextlib.suppress(FailureError):
            await until_closed(self.project.family, session.child, lambda: False)

    # Checks and the list of tasks

    async def verify(self, tasks: list[str]) -> None:
        """Passing tasks are checked again, by their commands."""
        wanted = [self.project.course.task(each) for each in tasks[:CHECKED_AT_ONCE]]
        checked = await self._checks(wanted, self.project.files)
        still = [task.id for task in wanted if task.status == "passing"]
        for name, why in checked.broken.items():
            if name in still:
                self.note("flipped", None, PROJECT, f"{name}: {why}")
        self.project.course.checked({name: checked.broken[name] for name in still if name in checked.broken}, still)
        self.project.trim()
        self.publish()

    async def _checks(self, tasks: list[Task], files: Workspace, finished: bool = False) -> Checked:
        opening = self.project.opened
        request = CheckRequest(
            thread=opening.thread,
            workspace=files,
            tasks=[task.model_copy(update={"reasons": []}) for task in tasks],
            bundle=opening.roles.coder.digest,
            seconds=opening.terms.check,
            finished=finished,
            since=self.project.commit if finished else None,
        )
        commands = sum(len(task.checks) for task in tasks)
        names = ", ".join(task.id for task in tasks)
        return await self.mendable(
            lambda: catalog.PROJECT_CHECK.run(
                request,
                summary=f"check {names}"[:100],
                wait=timedelta(seconds=commands * opening.terms.check + START_COMMANDS),
                queue=self._tools(),
            )
        )

    async def keep(self, everything: bool = False) -> None:
        """Writes the list of tasks into the repository, where it has changed, commits and delivers."""
        state, opening = self.project, self.project.opened
        if state.kept == state.standing():
            return
        state.keeps += 1
        standing = state.standing()
        request = KeepRequest(
            thread=opening.thread,
            number=state.keeps,
            workspace=state.files,
            tasks=[task.model_copy() for task in state.course.tasks],
            everything=everything,
            repository=opening.repository,
            target=opening.target,
            branch=state.branch,
            brief=opening.brief,
            roles=opening.roles,
            handoff=self._last_word(),
        )
        kept = await self.mendable(
            lambda: catalog.PROJECT_KEEP.run(request, summary="commit the list of tasks", queue=self._tools())
        )
        state.workspace, state.commit, state.kept = kept.workspace, kept.commit, standing

    def _tools(self) -> str:
        return workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX
