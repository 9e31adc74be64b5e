"""The messages and queries of a project. As with a run, a message is an update and a signal."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import messages as m
from workflows import project_messages as pm
from workflows.project_asks import ProjectAsks, meant
from workflows.project_board import pending_views, status_view
from workflows.project_records import Said
from workflows.queries import last_wanted
from workflows.receiving import MANY_UPDATES, Answer, Receiving, Source, attach, by_signal
from workflows.reporting import CHILD, hear


class ProjectHandlers(ProjectAsks, Receiving):
    """`resumed`: a person asks for another try of what a parked project waits for. `rolling`: a rollover is due."""

    resumed: bool
    rolling: bool

    # Messages

    table = pm.TABLE

    def answered(self) -> dict[str, Answer]:
        """What updates were answered, by their id."""
        return self.project.applied

    async def on_update(self, name: str, payloads: Sequence[RawValue | None]) -> Answer:
        """Applies an update."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self.project.applied:
            return self.project.applied[update_id]
        self.updates += 1
        source: Source = {"via": "update", "id": update_id}
        try:
            answer = self._apply(name, self.parsed(name, payloads), source)
        except m.MessageError as error:
            self.note("rejected", None, source, str(error))
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None
        self.project.book_update(update_id, answer)
        return answer

    async def on_signal(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Applies a signal. One that cannot be used is recorded, and nothing is drawn: there may be a flood of them."""
        source = by_signal()
        try:
            self._apply(name, self.parsed(name, payloads), source)
        except m.MessageError as error:
            self.note("rejected", None, source, str(error))

    def check(self, message: m.Message, first: bool = False) -> None:
        """Raises MessageError for a message that can change nothing."""
        if self.ended is not None:
            raise m.MessageError(f"the project has ended ({self.ended}); nothing was changed")
        if isinstance(message, m.Approve | m.Deny | m.Answer | m.Resolve):
            self.find(message)
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

    def _apply(self, name: str, message: m.Message, source: Source) -> Answer:
        self.check(message)
        if isinstance(message, m.Answer):
            request, repeats = self.find(message)
            if repeats:
                return {"ok": True, "status": f"already {request.outcome}"}
            name, message = meant(request, message)
            self.check(message)
        acts: dict[type[m.Message], Callable[[Any], str]] = {
            pm.Say: self._message,
            pm.Retry: self._retry,
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
        self.settle(message, source)
        self.publish()
        return {"ok": True, "status": status}

    def _message(self, message: pm.Say | pm.Retry) -> str:
        self.project.inbox.append(Said(text=message.text, by=message.by))
        return "queued for the next session"

    def _retry(self, message: pm.Retry) -> str:
        self.resumed = True
        return self._message(message)

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
        source = by_signal()
        try:
            if rest:
                raise ValueError("one JSON object is wanted")
            hear(self.project.family, value)
        except ValidationError as error:
            self.note("rejected", None, source, f"{CHILD}: {m.explain(error)}")
        except ValueError as error:
            self.note("rejected", None, source, f"{CHILD}: {error}")
        self.publish()

    @workflow.signal(dynamic=True, description="Any other signal: recorded as a rejected message")
    async def other(self, name: str, args: Sequence[RawValue]) -> None:
        """A signal of an unknown name is not lost in silence."""
        source = by_signal()
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

    @workflow.query(name="pending", description="What it and its sessions ask of people, with the exact commands")
    def pending(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The open requests of the project, then those of the session at work: these are decided there."""
        return pending_views(self.project, workflow.info().workflow_id, self.ended is not None)

    @workflow.query(name="decisions", description='The last decisions on what it asked. Input: {"last": n}')
    def decisions(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """Who decided what, and by which message. What was not asked for is in the log of the query `status`."""
        count = last_wanted(value, rest)
        return [each.model_dump(mode="json") for each in self.project.requests.log[-count:]] if count else []


attach(ProjectHandlers)
