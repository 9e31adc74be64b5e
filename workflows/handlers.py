"""What happens when a message comes in: the same for an update and a signal of one name.

An update that cannot be used is rejected before it enters history. A signal cannot be answered, so it is recorded as a
rejected decision. Nothing that is not a well-formed message changes anything.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from workflows import messages as m
from workflows.catalog import EFFECT_PLAN, JUDGE, TOOLS_QUEUE_SUFFIX
from workflows.records import Item, JudgeRequest, Resolution, Verdict
from workflows.requests import Logged, Request, decision_digest
from workflows.rollover import MOST_UPDATES, Rollover
from workflows.showing import Showing
from workflows.undoing_records import UndoPlan, UndoPlanRequest

Source = dict[str, str | None]
Answer = dict[str, Any]


class Handlers(Showing, Rollover):
    """The messages of a run. `retry_now`: try what a parked run waits for."""

    retry_now: bool

    def validate(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Raises for an update that cannot be used: it is rejected and leaves no trace in history."""
        info = workflow.current_update_info()
        if info is not None and info.id in self.state.applied:
            return  # sent again over a rollover: it gets the answer that it got
        try:
            message = m.parse(name, workflow.info().workflow_id, payloads)
            if self.updates >= MOST_UPDATES:
                signal = m.command(workflow.info().workflow_id, name, message.model_dump(exclude_none=True), "signal")
                raise m.MessageError(f"{name}: this execution can take no more updates. Send: {signal}")
            self._check(message)
        except m.MessageError as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None

    async def on_update(self, name: str, payloads: Sequence[RawValue | None]) -> Answer:
        """Applies an update. Raises a failure, never an exception that would fail the workflow task."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self.state.applied:
            return self.state.applied[update_id]
        self.updates += 1
        try:
            message = m.parse(name, workflow.info().workflow_id, payloads)
            answer = await self._apply(message, {"via": "update", "id": update_id})
            self.state.book_update(update_id, answer)
            return answer
        except m.MessageError as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None

    async def on_signal(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Applies a signal; one that cannot be used is recorded."""
        source: Source = {"via": "signal", "id": str(workflow.info().get_current_history_length())}
        try:
            message = m.parse(name, workflow.info().workflow_id, payloads)
            await self._apply(message, source)
        except m.MessageError as error:
            self._reject(str(error), source)

    def on_unknown_signal(self, name: str) -> None:
        """A signal of a name that there is not."""
        source: Source = {"via": "signal", "id": str(workflow.info().get_current_history_length())}
        self._reject(f"there is no message {name!r}; there are: {', '.join(m.MESSAGES)}", source)

    def _reject(self, reason: str, source: Source) -> None:
        self.log(None, "rejected", None, source, reason=reason[:1000])
        self.publish()

    def log(
        self,
        request: Request | None,
        decision: str,
        by: str | None,
        source: Source,
        reason: str | None = None,
        after: Any = None,
    ) -> None:
        """Writes one line of the decision log."""
        call = request.call if request else None
        self.state.requests.note(
            Logged(
                code=request.code if request else None,
                kind=request.kind if request else None,
                operation_id=call.operation_id if call else None,
                decision=decision,
                by=by,
                source=source,
                at=workflow.now(),
                reason=reason,
                arguments_before=(call.arguments or call.arguments_preview) if call else None,
                arguments_after=after,
            )
        )

    def _check(self, message: m.Message) -> None:
        if self.ended is not None:
            raise m.MessageError(f"the run has ended ({self.ended}); nothing was changed")
        if isinstance(message, m.Approve | m.Deny | m.Answer | m.Resolve):
            self.state.requests.check(message, workflow.now(), workflow.info().workflow_id)
        if isinstance(message, m.Finish) and self.state.opening is not None and not self.state.opening.interactive:
            raise m.MessageError('finish: this run is not interactive; start it with {"interactive": true}')
        if isinstance(message, m.Budget) and not message.model_dump(exclude_none=True, exclude={"by"}):
            raise m.MessageError("budget: name at least one limit: turns, tokens, tool_calls, cost_usd or seconds")

    async def _apply(self, message: m.Message, source: Source) -> Answer:
        self._check(message)
        handlers: dict[type[m.Message], Callable[[Any, Source], Awaitable[str]]] = {
            m.Approve: self._approve,
            m.Deny: self._deny,
            m.Answer: self._answer,
            m.Resolve: self._resolve,
            m.UserMessage: self._user_message,
            m.Pause: self._pause,
            m.Resume: self._resume,
            m.Budget: self._budget,
            m.Finish: self._finish,
            m.Rollover: self._rollover,
            m.NewSession: self._new_session,
            m.Compensate: self._compensate,
        }
        status = await handlers[type(message)](message, source)
        self.look_at_history()
        self.publish()
        return {"ok": True, "status": status}

    def _find(self, message: m.Message) -> tuple[Request, bool]:
        return self.state.requests.check(message, workflow.now(), workflow.info().workflow_id)

    async def _approve(self, message: m.Approve, source: Source) -> str:
        request, repeats = self._find(message)
        if repeats:
            return f"already {request.outcome}"
        if message.arguments is None:
            return self._decide(request, message, "approved", source, message.note)
        verdict = await self._judged(request, message, "arguments", message.arguments)
        assert request.call is not None
        request.edited = verdict.body
        request.edited_call = request.call.model_copy(
            update={
                "fingerprint": verdict.fingerprint,
                "request_digest": verdict.request_digest,
                "summary": verdict.summary or request.call.summary,
            }
        )
        return self._decide(request, message, "edited", source, message.note, after=message.arguments)

    async def _deny(self, message: m.Deny, source: Source) -> str:
        request, repeats = self._find(message)
        if repeats:
            return f"already {request.outcome}"
        self.state.requests.denials += 1
        if request.call is not None and request.call.request_digest is not None:
            self.state.requests.denied_digests.append(request.call.request_digest)
        return self._decide(request, message, "denied", source, message.reason)

    async def _answer(self, message: m.Answer, source: Source) -> str:
        request, repeats = self._find(message)
        if repeats:
            return f"already {request.outcome}"
        verdict = await self._judged(request, message, "answer", message.value)
        request.edited = verdict.body
        return self._decide(request, message, "answered", source, None, after=message.value)

    async def _resolve(self, message: m.Resolve, source: Source) -> str:
        request, repeats = self._find(message)
        if repeats:
            return f"already {request.outcome}"
        request.resolution = Resolution(
            outcome=message.outcome, result=message.result, by=message.by, code=request.code
        )
        return self._decide(request, message, "resolved", source, message.outcome)

    def _decide(
        self, request: Request, message: m.Message, outcome: Any, source: Source, reason: str | None, after: Any = None
    ) -> str:
        request.outcome, request.by, request.reason = outcome, message.by, reason
        request.digest = decision_digest(message)
        self.log(request, outcome, message.by, source, reason=reason, after=after)
        return str(outcome)

    async def _judged(self, request: Request, message: m.Message, kind: Any, value: Any) -> Verdict:
        """Reserves the code while an activity judges the value. Raises MessageError, with the request open again."""
        assert request.call is not None
        state, request.judging = self.state, message.by
        asked = JudgeRequest(
            thread=state.opened.thread,
            bundle=state.opened.bundle.digest,
            head=state.at,
            call=request.call,
            kind=kind,
            value=value,
        )
        try:
            verdict = await JUDGE.run(asked, summary=f"check what {message.by} sent for {request.code}"[:100])
        except ActivityError:
            raise m.MessageError(f"{request.code}: it could not be checked just now; the request stays open") from None
        finally:
            request.judging = None
        if request.outcome is not None:
            raise m.MessageError(f"{request.code} is already {request.outcome}; nothing was changed")
        if not verdict.ok:
            raise m.MessageError(f"{request.code}: {verdict.reason}; the request stays open")
        return verdict

    async def _user_message(self, message: m.UserMessage, source: Source) -> str:
        self.state.inbox.append(Item(text=message.text, by=message.by))
        return "queued"

    async def _pause(self, message: m.Pause, source: Source) -> str:
        self.state.paused = f"by {message.by}" + (f": {message.reason}" if message.reason else "")
        return "paused"

    async def _resume(self, message: m.Resume, source: Source) -> str:
        self.retry_now = self.state.problem is not None
        was = "resumed" if self.state.paused is not None or self.retry_now else "running"
        self.state.paused = None
        return was

    async def _budget(self, message: m.Budget, source: Source) -> str:
        new = message.model_dump(exclude_none=True, exclude={"by"})
        self.state.limits = self.state.limits.model_copy(update=new)
        for request in self.state.requests.open():
            if request.kind == "budget" and not self.state.reached():
                self._decide(request, message, "resolved", source, None, after=new)
        return "raised"

    async def _finish(self, message: m.Finish, source: Source) -> str:
        self.state.finishing = True
        return "finishing"

    async def _new_session(self, message: m.NewSession, source: Source) -> str:
        self.state.handoff_by = message.by
        return "a new session begins with the next turn"

    async def _rollover(self, message: m.Rollover, source: Source) -> str:
        self.rolling = True
        return "rolling over"

    async def _compensate(self, message: m.Compensate, source: Source) -> str:
        """Queues what can be undone; it is done beside the loop, one after the other."""
        if self.state.opening is None:
            raise m.MessageError("compensate: the run is still being opened; send it again in a moment")
        try:
            plan = await self.undo_plan(message.operation_id)
        except ActivityError:
            raise m.MessageError("compensate: the ledger could not be read just now; send it again") from None
        steps = [step for step in plan.steps if all(step.operation_id != one.operation_id for one in self.state.undo)]
        if plan.refused is not None or not steps:
            raise m.MessageError(f"compensate: {plan.refused or 'all of it is being undone already'}")
        self.state.undo += [step.model_copy(update={"by": message.by}) for step in steps]
        named = ", ".join(step.operation_id for step in steps[:10])
        self.log(None, "compensate", message.by, source, reason=named)
        kept = f"; without a compensation: {', '.join(plan.kept[:10])}" if plan.kept else ""
        return f"undoing {len(steps)}: {named}{kept}"

    async def undo_plan(self, operation_id: str | None) -> UndoPlan:
        """What can be undone, the last effect first."""
        request = UndoPlanRequest(thread=self.state.opened.thread, operation_id=operation_id)
        queue = workflow.info().task_queue + TOOLS_QUEUE_SUFFIX
        return await EFFECT_PLAN.run(request, summary="what can be undone", queue=queue)


def _attach(name: str) -> None:
    """Gives the class an update and a signal of that name. A function, so that each handler keeps its own name."""

    @workflow.update(name=name, description=m.description(name))
    async def update(self: Handlers, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        return await self.on_update(name, _given(value, rest))

    @update.validator
    def validate(self: Handlers, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.validate(name, _given(value, rest))

    @workflow.signal(name=name, description=m.description(name))
    async def signal(self: Handlers, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        await self.on_signal(name, _given(value, rest))

    setattr(Handlers, f"{name}_update", update)
    setattr(Handlers, f"{name}_signal", signal)


def _given(value: RawValue | None, rest: Sequence[RawValue]) -> list[RawValue | None]:
    return [] if value is None and not rest else [value, *rest]


for _name in m.MESSAGES:
    _attach(_name)
