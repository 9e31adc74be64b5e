"""The messages and queries of a project, and what it shows. As with a run, a message is an update and a signal."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import messages as m
from workflows import project_messages as pm
from workflows.child_records import ChildReport
from workflows.decisions import Source
from workflows.project_board import board, status_view
from workflows.project_records import Entry, Said
from workflows.project_state import ProjectState
from workflows.queries import last_wanted
from workflows.reporting import CHILD
from workflows.rollover import MANY_UPDATES, MOST_UPDATES
from workflows.showing import SINCE, STATUS, WAITING_ON

Answer = dict[str, Any]


class ProjectHandlers:
    """`project` is what is carried; `ended` its final status. `resumed`: a person asks for another try of what a parked
    project waits for. `rolling`: a rollover is due."""

    project: ProjectState
    ended: str | None
    resumed: bool
    rolling: bool
    updates: int
    shown: tuple[Any, ...]

    def shown_status(self) -> str:
        """The status of the project, or of its result."""
        return self.ended or self.project.status()

    def publish(self) -> None:
        """Current Details, and the search attributes where the namespace has them and they changed."""
        status, workflow_id = self.shown_status(), workflow.info().workflow_id
        workflow.set_current_details(board(self.project, workflow_id, status))
        opening = self.project.opening
        if opening is None or not opening.search_attributes:
            return
        shown = (status, self.project.waiting_on())
        if shown != self.shown:
            self.shown, waiting = shown, shown[1]
            workflow.upsert_search_attributes(
                [
                    STATUS.value_set(status),
                    WAITING_ON.value_set(waiting) if waiting else WAITING_ON.value_unset(),
                    SINCE.value_set(workflow.now()),
                ]
            )

    def note(self, what: str, by: str | None, source: Source, reason: str = "") -> None:
        """Writes one line of the log."""
        now: datetime = workflow.now()
        self.project.note(Entry(what=what, by=by, at=now.isoformat(), source=dict(source), reason=reason))

    # Messages

    def validate(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Raises for an update that cannot be used: it is rejected and leaves no trace in history."""
        info, workflow_id = workflow.current_update_info(), workflow.info().workflow_id
        if info is not None and info.id in self.project.applied:
            return  # sent again over a rollover: it gets the answer that it got
        try:
            message = m.parse(name, workflow_id, payloads, pm.TABLE)
            if self.updates >= MOST_UPDATES:
                signal = m.command(workflow_id, name, message.model_dump(exclude_none=True), "signal")
                raise m.MessageError(f"{name}: this execution can take no more updates. Send: {signal}")
            self._check(message)
        except m.MessageError as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None

    def on_update(self, name: str, payloads: Sequence[RawValue | None]) -> Answer:
        """Applies an update."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self.project.applied:
            return self.project.applied[update_id]
        self.updates += 1
        source: Source = {"via": "update", "id": update_id}
        try:
            answer = self._apply(name, m.parse(name, workflow.info().workflow_id, payloads, pm.TABLE), source)
        except m.MessageError as error:
            self.note("rejected", None, source, str(error))
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None
        self.project.book_update(update_id, answer)
        return answer

    def on_signal(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Applies a signal. One that cannot be used is recorded, and nothing is drawn: there may be a flood of them."""
        source: Source = {"via": "signal", "id": str(workflow.info().get_current_history_length())}
        try:
            self._apply(name, m.parse(name, workflow.info().workflow_id, payloads, pm.TABLE), source)
        except m.MessageError as error:
            self.note("rejected", None, source, str(error))

    def _check(self, message: m.Message) -> None:
        if self.ended is not None:
            raise m.MessageError(f"the project has ended ({self.ended}); nothing was changed")
        if isinstance(message, m.Approve | m.Deny | m.Answer | m.Resolve):
            raise m.MessageError(self._owner_of(message.code))
        if isinstance(message, m.Budget) and not message.model_dump(exclude_none=True, exclude={"by"}):
            raise m.MessageError("budget: name at least one limit: turns, tokens, tool_calls, cost_usd or seconds")
        if isinstance(message, m.UserMessage):
            waiting = sum(len(said.text.encode()) for said in self.project.inbox)
            if waiting + len(message.text.encode()) > m.RESULT_BYTES:
                raise m.MessageError(f"message: more than {m.RESULT_BYTES} bytes would wait for the next session")
        named = getattr(message, "tasks", None) or [getattr(message, "task", None)]
        try:
            for task in filter(None, named):
                self.project.course.task(task)
        except ValueError as error:
            raise m.MessageError(str(error)) from None

    def _owner_of(self, code: str) -> str:
        for asked in self.project.family.pending():
            if asked.code == code:
                lines = " | ".join(asked.commands.values())
                return f"{code} is asked by the session {asked.owner}; send it there: {lines}"
        return f"no session asks for {code}; what they ask for: the query `pending`, or perdure pending"

    def _apply(self, name: str, message: m.Message, source: Source) -> Answer:
        self._check(message)
        acts: dict[type[m.Message], Callable[[Any], str]] = {
            pm.Say: self._message,
            m.Pause: self._pause,
            m.Resume: self._resume,
            m.Budget: self._budget,
            pm.Reorder: self._reorder,
            pm.Drop: self._drop,
            pm.Accept: self._accept,
            pm.Reject: self._reject,
            m.Rollover: self._rollover,
        }
        status = acts[type(message)](message)
        about = getattr(message, "task", None) or getattr(message, "reason", None) or ""
        self.note(name, message.by, source, about)
        self.publish()
        return {"ok": True, "status": status}

    def _message(self, message: pm.Say) -> str:
        self.project.inbox.append(Said(text=message.text, by=message.by))
        return "queued for the next session"

    def _pause(self, message: m.Pause) -> str:
        self.project.paused = f"by {message.by}" + (f": {message.reason}" if message.reason else "")
        return "paused before the next session; the one at work goes on"

    def _resume(self, message: m.Resume) -> str:
        self.project.paused, self.resumed = None, True
        return "resumed"

    def _budget(self, message: m.Budget) -> str:
        new = message.model_dump(exclude_none=True, exclude={"by"})
        self.project.limits = self.project.limits.model_copy(update=new)
        return "raised"

    def _reorder(self, message: pm.Reorder) -> str:
        self.project.course.reordered(message.tasks)
        return "reordered"

    def _drop(self, message: pm.Drop) -> str:
        self.project.course.dropped(message.task)
        return "dropped"

    def _accept(self, message: pm.Accept) -> str:
        self.project.course.decided(message.task, True, self._reason(message))
        return "passing"

    def _reject(self, message: pm.Reject) -> str:
        self.project.course.decided(message.task, False, self._reason(message))
        return "open"

    @staticmethod
    def _reason(message: pm.Accept | pm.Reject) -> str:
        return f"{message.by}: {message.reason}" if message.reason else ""

    def _rollover(self, message: m.Rollover) -> str:
        self.rolling = True
        return "rolling over"

    @workflow.signal(name=CHILD, description="Sessions report by it what they ask of people. Not for people")
    async def on_report(self, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        """Books what a session says."""
        source: Source = {"via": "signal", "id": str(workflow.info().get_current_history_length())}
        try:
            if rest:
                raise ValueError("one JSON object is wanted")
            self.project.family.file(ChildReport.model_validate(m.decode_json(value)))
        except ValidationError as error:
            self.note("rejected", None, source, f"{CHILD}: {m.explain(error)}")
        except ValueError as error:
            self.note("rejected", None, source, f"{CHILD}: {error}")
        self.publish()

    @workflow.signal(dynamic=True, description="Any other signal: recorded as a rejected message")
    async def other(self, name: str, args: Sequence[RawValue]) -> None:
        """A signal of an unknown name is not lost in silence."""
        source: Source = {"via": "signal", "id": str(workflow.info().get_current_history_length())}
        self.note("rejected", None, source, f"there is no message {name[:60]!r}; there are: {', '.join(pm.KINDS)}")

    def many_updates(self) -> bool:
        """Whether this execution has taken about as many updates as the server allows."""
        return self.updates >= MANY_UPDATES

    # Queries

    @workflow.query(name="status", description="What the project does and waits for, its budget and usage")
    def status(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        """The project in one object."""
        return status_view(self.project, workflow.info().workflow_id, self.shown_status())

    @workflow.query(name="tasks", description="The tasks in their order, with their status and reasons")
    def tasks(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The tasks."""
        return [task.model_dump() for task in self.project.course.tasks]

    @workflow.query(name="handoffs", description='What the last sessions said at their end. Input: {"last": n}')
    def handoffs(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The sessions that have ended, the oldest first."""
        count = last_wanted(value, rest)
        return [each.model_dump() for each in self.project.handoffs[-count:]] if count else []

    @workflow.query(name="pending", description="What its sessions ask of people, with the exact commands")
    def pending(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The open requests of the session at work: they are decided there."""
        return [asked.model_dump(mode="json") for asked in self.project.family.pending()]


def _attach(name: str) -> None:
    """Gives the class an update and a signal of that name. A function, so that each handler keeps its own name."""

    @workflow.update(name=name, description=pm.TABLE.description(name))
    async def update(self: ProjectHandlers, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        return self.on_update(name, _given(value, rest))

    @update.validator
    def validate(self: ProjectHandlers, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.validate(name, _given(value, rest))

    @workflow.signal(name=name, description=pm.TABLE.description(name))
    async def signal(self: ProjectHandlers, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.on_signal(name, _given(value, rest))

    setattr(ProjectHandlers, f"{name}_update", update)
    setattr(ProjectHandlers, f"{name}_signal", signal)


def _given(value: RawValue | None, rest: Sequence[RawValue]) -> list[RawValue | None]:
    return [] if value is None and not rest else [value, *rest]


for _name in pm.KINDS:
    _attach(_name)
