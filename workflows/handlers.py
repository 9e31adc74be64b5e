"""What happens when a message comes in: the same for an update and a signal of one name.

An update that cannot be used is rejected before it enters history. A signal cannot be answered, so it is recorded as a
rejected decision. Nothing that is not a well-formed message changes anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from workflows import messages as m
from workflows.catalog import EFFECT_PLAN, TOOLS_QUEUE_SUFFIX, UPGRADE, Command
from workflows.display import enough, reached_text
from workflows.editing import Editing
from workflows.receiving import Answer, Receiving, Source, attach, by_signal
from workflows.records import Item
from workflows.rollover import Rollover
from workflows.undoing_records import UndoPlan, UndoPlanRequest
from workflows.upgrade_records import UpgradeRequest, Upgrading

RESOLVED_TO_THE_END = "resolved-while-ending"
"""The patch since which a person can resolve the review of an undoing that the end of the run waits for."""

ALL_OF_A_BRANCH = "all-of-a-branch"
"""The patch since which a `compensate` of all, sent to a run that was reset, has to name the branch that it is for."""

LATE_BUDGETS = "late-budgets-refused"
"""The patch since which a `budget` that is handled at the deadline of its request or after it comes too late."""


class Handlers(Editing, Rollover, Receiving):
    """The messages of a run. `closing`: the status with which the run is about to end. `early`: decisions that came
    before their request, by code, with the length of the history then; `taking`: those that are being applied."""

    closing: str | None
    early: dict[str, tuple[int, m.Message, Source]]
    taking: list["asyncio.Task[None]"]

    table = m.TABLE

    def answered(self) -> dict[str, Answer]:
        """What updates were answered, by their id."""
        return self.state.applied

    def look_at_history(self) -> None:
        """Decides whether a rollover is due: never for a run that only ends any more."""
        if not self.failing:
            super().look_at_history()

    async def on_update(self, name: str, payloads: Sequence[RawValue | None]) -> Answer:
        """Applies an update. Raises a failure, never an exception that would fail the workflow task."""
        info = workflow.current_update_info()
        update_id = info.id if info else ""
        if update_id in self.state.applied:
            return self.state.applied[update_id]
        self.updates += 1
        source: Source = {"via": "update", "id": update_id}
        message = None
        try:
            message = self.parsed(name, payloads)
            answer = await self._apply(message, source)
            self.state.book_update(update_id, answer)
        except m.MessageError as error:
            self.reject(str(error), source, message)
            self.look_at_history()
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None
        self.look_at_history()
        return answer

    async def on_signal(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Applies a signal; one that cannot be used is recorded."""
        source, message = by_signal(), None
        try:
            message = self.parsed(name, payloads)
            await self.unreserved(message)
            await self._apply(message, source)
        except m.MessageError as error:
            self.reject(str(error), source, message)
            self._keep_early(message, source)
        self.look_at_history()

    def _keep_early(self, message: m.Message | None, source: Source) -> None:
        """Keeps a decision on a code that there is not, until the next workflow task.

        A query that reaches a fresh worker late is answered from events that no workflow task has taken up, and the SDK
        goes on from there: who asked then decides on a request that the record has only in the task that also holds the
        decision. A replay is given both at once, the decision first.
        """
        code, now = str(getattr(message, "code", "")), workflow.info().get_current_history_length()
        if message is None or not code or code in self.state.requests.by_code:
            return
        if any(at != now for at, _, _ in self.early.values()):
            self.early.clear()
        self.early[code] = now, message, source

    def take_early(self, code: str) -> None:
        """Applies what was decided on the code of this new request, where it came in this very workflow task."""
        at, message, source = self.early.pop(code, (0, None, None))
        if message is None or source is None or at != workflow.info().get_current_history_length():
            return

        async def apply() -> None:
            await workflow.wait_condition(lambda: True)  # until all that came in this task is taken up, as it was then
            try:
                await self._apply(message, source)
            except m.MessageError as error:
                self.reject(str(error), source, message)

        self.taking.append(asyncio.create_task(apply()))

    def on_unknown_signal(self, name: str) -> None:
        """A signal of a name that there is not."""
        self.reject(f"there is no message {name[:60]!r}; there are: {', '.join(m.MESSAGES)}", by_signal())
        self.look_at_history()

    def check(self, message: m.Message, first: bool = False) -> None:
        """Raises MessageError for a message that can change nothing. `first`: nothing is recorded of it yet."""
        if self.ended is not None:
            raise m.MessageError(f"the run has ended ({self.ended}); nothing was changed")
        if self.closing is not None and not isinstance(message, m.Resume | m.Rollover | m.Resolve):
            raise self._ending()
        if self.failing and isinstance(message, m.Rollover):
            raise self._ending()
        if isinstance(message, m.Approve | m.Deny | m.Answer | m.Resolve):
            self.find(message)
        if isinstance(message, m.Finish) and self.state.opening is not None and not self.state.opening.interactive:
            raise m.MessageError('finish: this run is not interactive; start it with {"interactive": true}')
        if isinstance(message, m.Budget) and not message.model_dump(exclude_none=True, exclude={"by"}):
            raise m.MessageError("budget: name at least one limit: turns, tokens, tool_calls, cost_usd or seconds")
        if isinstance(message, m.Edit):
            self.check_edit(message)
        if isinstance(message, m.UserMessage) and self.unread_bytes() + len(message.text.encode()) > m.MESSAGE_BYTES:
            raise m.MessageError("message: too much is waiting to be read; send it after the next turn")
        late = self.late_budget() if isinstance(message, m.Budget) else None
        if late is not None and (first or workflow.patched(LATE_BUDGETS)):
            raise late

    def _ending(self) -> m.MessageError:
        return m.MessageError(f"the run is ending ({self.closing}); nothing was changed")

    async def _apply(self, message: m.Message, source: Source) -> Answer:
        self.check(message)
        if self.closing is not None and isinstance(message, m.Resolve) and not workflow.patched(RESOLVED_TO_THE_END):
            raise self._ending()
        handlers: dict[type[m.Message], Callable[[Any, Source], Awaitable[str]]] = {
            m.Approve: self.approve,
            m.Deny: self.deny,
            m.Answer: self.answer,
            m.Resolve: self.resolve,
            m.UserMessage: self._user_message,
            m.Pause: self._pause,
            m.Resume: self._resume,
            m.Budget: self._budget,
            m.Finish: self._finish,
            m.Rollover: self._rollover,
            m.NewSession: self._new_session,
            m.Compensate: self._compensate,
            m.Upgrade: self._upgrade,
            m.Edit: self.edit,
        }
        status = await handlers[type(message)](message, source)
        self.publish_attributes()
        self.draw_soon()
        return {"ok": True, "status": status}

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
        self.state.limits, self.state.sent = (
            each.model_copy(update=new) for each in (self.state.limits, self.state.sent)
        )
        reached = self.state.reached()
        for request in self.state.requests.open():
            if request.kind == "budget" and not reached:
                self.decide(request, message, "resolved", source, None, after=new)
            elif request.kind == "budget":
                request.question, request.raise_to = reached_text(reached), enough(reached, self.state.needed_now())
        return f"raised; still reached: {', '.join(reached)}" if reached else "raised"

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
            plan = await self.undo_plan(message.operation_id, EFFECT_PLAN)
        except ActivityError:
            raise m.MessageError("compensate: the ledger could not be read just now; send it again") from None
        if self.failing:
            raise self._ending()
        self._meant_here(message, plan)
        steps = [step for step in plan.steps if all(step.operation_id != one.operation_id for one in self.state.undo)]
        if plan.refused is not None or not steps:
            raise m.MessageError(f"compensate: {plan.refused or 'all of it is being undone already'}")
        self.state.undo += [step.model_copy(update={"by": message.by}) for step in steps]
        named = ", ".join(step.operation_id for step in steps[:10])
        self.log(None, "compensate", message.by, source, reason=named)
        kept = f"; without a compensation: {', '.join(plan.kept[:10])}" if plan.kept else ""
        over = f"; tried before and not undone: {', '.join(plan.over[:10])}" if plan.over else ""
        return f"undoing {len(steps)}: {named}{kept}{over}"

    def _meant_here(self, message: m.Compensate, plan: UndoPlan) -> None:
        """A reset sends old messages again, and "all" was meant for what there was then. So after one, it has to name
        the branch. (Looked at after the plan: by then the history tells of the reset.)"""
        state = self.state
        here = message.operation_id is not None or message.branch == state.branch
        if here or not (state.left or plan.branched) or not plan.steps:
            return
        if workflow.patched(ALL_OF_A_BRANCH):
            named = ", ".join(step.operation_id for step in plan.steps[:10])
            line = m.command(workflow.info().workflow_id, "compensate", {"branch": state.branch, "by": message.by})
            was = f"this run was set back, so this may be an old message. All is now {len(plan.steps)}: {named}"
            raise m.MessageError(f"compensate: {was}. Name one by its operation_id, or send for all: {line}")

    async def _upgrade(self, message: m.Upgrade, source: Source) -> str:
        """The version is resolved, pinned and checked now; it takes hold when the next session begins."""
        if self.state.opening is None:
            raise m.MessageError("upgrade: the run is still being opened; send it again in a moment")
        waiting = self.state.upgrade
        request = UpgradeRequest(
            bundle=message.bundle,
            opening=self.state.opening,
            waiting=None if waiting is None else waiting.opening.bundle,
        )
        try:
            found = await UPGRADE.run(request, summary=f"check {message.bundle}")
        except ActivityError:
            raise m.MessageError("upgrade: the bundle could not be looked at just now; send it again") from None
        if found.opening is None:
            raise m.MessageError(f"upgrade: {found.refused}")
        if self.failing:
            raise self._ending()
        named = f"{found.opening.bundle.name}@{found.opening.bundle.version}"
        if found.opening.bundle.digest == self.state.opening.bundle.digest:
            if self.upgrading:
                raise m.MessageError("upgrade: the session is being handed over; send it again when that is through")
            self.state.upgrade = None
            self.log(None, "upgrade", message.by, source, reason=f"it stays on {named}")
            return f"it stays on {named}"
        self.state.upgrade = Upgrading(opening=found.opening, by=message.by)
        self.log(None, "upgrade", message.by, source, reason=f"{named} ({found.opening.bundle.digest[:12]})")
        return f"{named} from the next session on; `handoff` begins one now"

    async def undo_plan(self, operation_id: str | None, command: Command[UndoPlanRequest, UndoPlan]) -> UndoPlan:
        """What can be undone, the last effect first. `command`: EFFECT_PLAN, with an end to its tries or without."""
        state = self.state
        request = UndoPlanRequest(
            thread=state.opened.thread,
            operation_id=operation_id,
            left=operation_id in state.abandoned,
            branched=state.branched,
        )
        queue = workflow.info().task_queue + TOOLS_QUEUE_SUFFIX
        said = "what can be undone" if operation_id is None else f"what is on record of {operation_id}"[:100]
        return await command.run(request, summary=said, queue=queue)


attach(Handlers)
