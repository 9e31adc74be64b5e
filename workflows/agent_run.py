"""AgentRun: the loop of an agent. It puts recorded facts in order; every decision is an activity's or a person's.

Each line here, and in the parts it is made of, is one that running agents depend on for years: it changes only by
patch.

    showing <- decisions <- editing <- handlers <- people <- gates <- undoing <- reporting <- delegation <- tool_calls
            <- sessions <- endings <- agent_run
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows import catalog
from workflows.display import checkpoint_view
from workflows.endings import Endings
from workflows.forks import book_fork, fork_request, mint, show_parent
from workflows.gates import failure_of
from workflows.queries import Queries
from workflows.receiving import given
from workflows.records import OpenRequest, ResultStatus, Turn
from workflows.rollover import RollOver, carried, misfit
from workflows.session_records import Closing, ClosingRequest, Conclusion
from workflows.state import RunState
from workflows.undoing import evicted

UNDONE_FIRST = "undone-before-the-end"
"""The patch since which a run that ends does so after what a `compensate` queued while it was ending."""


CANCELLED_ROLLOVERS = "cancelled-while-rolling-over"
"""The patch since which a cancellation that comes while a rollover waits for message handlers ends the run as any
other does."""


@workflow.defn(name="AgentRun")
class AgentRun(Endings, Queries):
    """One agent, one goal, from the opening to a result."""

    misfit: ApplicationError | None

    @workflow.init
    def __init__(self, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.state, self.misfit = RunState(branch=mint()), None
        self.start_counting()
        self.ended = self.closing = None
        self.retry_now = self.ending = self.leaving = False
        self.busy, self.writers = 0, asyncio.Lock()
        self.shown, self.telling, self.early, self.taking = (), [], {}, []
        try:  # here, since messages that wait for this execution are handled before `run` begins
            found = None if rest else carried(value, RunState)
            if found is not None:
                self._carry_on(found)
        except ValidationError as error:
            self.misfit = misfit(error)
        workflow.register_random_seed_callback(self._reseeded)

    @workflow.run
    async def run(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        """The result, as CONTRACT gives it; fails with a named failure, ends Cancelled when it is cancelled."""
        rolls = False
        try:
            try:
                await self._begin(value, rest)
                self.begin_reports()
                result = await self.undo_beside(self._live())
                await self.report_end()
                return result
            except RollOver:
                rolls = True
                await self.handled()
        except (ActivityError, ApplicationError, asyncio.CancelledError) as error:
            if rolls and not evicted() and not workflow.patched(CANCELLED_ROLLOVERS):
                raise
            self.fail(error)
            await self.outlast(self._ending_by(error))
            if isinstance(error, ActivityError) and self.ended == "failed":
                raise failure_of(error) from None
            raise
        self.tick()
        return self.continue_as_new()

    async def _ending_by(self, error: BaseException) -> None:
        await self.count_spent()
        await self.stop_children()
        await self.undo_at_end()
        self.ended = "cancelled" if is_cancelled_exception(error) else "failed"
        self.close_requests(undoings=True)
        self.publish()
        await self.report_end()

    async def _live(self) -> dict[str, Any]:
        try:
            return await self._loop()
        except (ActivityError, ApplicationError, asyncio.CancelledError) as error:
            self.fail(error)
            raise

    async def _loop(self) -> dict[str, Any]:
        state = self.state
        if state.conclusion is not None and state.turn is None:  # it rolled over while it was ending
            return await self._close(state.conclusion.status, reason=state.conclusion.reason)
        while True:
            if state.turn is None:
                if not await self.may_go_on():
                    return await self._close("budget_exhausted", reason="the limit was not raised in time")
                if await self.take_turn(workflow.info().workflow_id) is None:
                    continue
            assert state.turn is not None
            turn = state.turn
            if turn.kind in ("refused", "content_filtered"):
                return await self._close(turn.kind, turn)
            await self._answer_calls(turn)
            if turn.kind == "answer" and not await self.more_to_do():
                closing = await self._store_files()
                if not state.inbox:  # else somebody spoke meanwhile
                    return self._result("completed", closing, turn)
            fault = state.too_faulty()
            state.end_turn()
            if state.requests.denials >= state.opened.max_denials:
                return await self._close("denied", reason=f"people denied {state.requests.denials} requests")
            if fault is not None:
                raise ApplicationError(fault, type="InvalidModelOutput", non_retryable=True)

    async def _begin(self, value: RawValue | None, rest: Sequence[RawValue]) -> None:
        info = workflow.info()
        if self.misfit is not None:
            raise self.misfit
        if self.state.opening is None:
            request = OpenRequest(
                workflow_id=info.workflow_id,
                first_execution_run_id=info.first_execution_run_id,
                branch=self.state.branch,
                payloads=len(given(value, rest)),
                cron=bool(info.cron_schedule),
            )
            self.state.branched = self.state.branched or branches_off(info)
            opening = await self.mendable(lambda: catalog.OPEN.run(request, value, summary="open the run"))
            self.state.book_opening(opening)
            if opening.ancestry:
                await self._take_over(value)
        for asked in self.state.requests.open():
            self.tell(asked)
        self.publish()

    async def _take_over(self, value: RawValue | None) -> None:
        asked = fork_request(self.state)
        forked = await self.mendable(lambda: catalog.FORK.run(asked, value, summary="take over what was before"))
        book_fork(self.state, forked)
        show_parent(self.state)

    async def _answer_calls(self, turn: Turn) -> None:
        """All calls together; returns when each has its one answer. A rollover waits for what runs, not for people."""
        waiting = [call for call in turn.calls if call.id not in self.state.answers]
        tasks = [asyncio.create_task(self.answer_call(call)) for call in waiting]
        try:
            await workflow.wait_condition(
                lambda: (
                    all(task.done() for task in tasks)
                    or any(_broke(task) for task in tasks)
                    or (self.rolling and self.busy == 0)
                )
            )
        except asyncio.CancelledError as error:
            self.ending = True
            self.fail(error)
            await self._give_up(tasks)
            raise
        for task in tasks:
            broken_by = task.exception() if _broke(task) else None
            if isinstance(broken_by, ActivityError | ApplicationError):
                self.fail(broken_by)
        ends = await self._give_up(tasks)
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, RollOver):
                raise end
        if any(call.id not in self.state.answers for call in turn.calls):
            raise RollOver

    async def _give_up(self, tasks: "list[asyncio.Task[None]]") -> list[BaseException | None]:
        self.leaving = True
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        self.leaving = False
        return ends

    async def _close(self, status: ResultStatus, turn: Turn | None = None, reason: str | None = None) -> dict[str, Any]:
        self.closing, self.state.conclusion = status, Conclusion(status=status, reason=reason)
        self.reject_unread(status)
        await self.count_spent()
        return self._result(status, await self._store_files(), turn, reason)

    async def _store_files(self) -> Closing:
        thread = self.state.opened.thread
        queue = workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX
        while True:
            await self.wait(lambda: not self.state.undo, "undoing")
            closing = await self.mendable(
                lambda: catalog.CLOSE.run(
                    ClosingRequest(thread=thread, files=self.state.files),
                    summary="list the files of the run",
                    queue=queue,
                )
            )
            await workflow.wait_condition(workflow.all_handlers_finished)
            if not self.state.undo or not workflow.patched(UNDONE_FIRST):
                return closing

    def _result(
        self, status: ResultStatus, closing: Closing, turn: Turn | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        self.ended = status
        self.publish()
        state, log = self.state, self.state.requests
        totals = {
            "effects": state.effects_total + len(state.abandoned),
            "decisions": log.logged,
            "artifacts": closing.total,
        }
        return {
            "status": status,
            "output": turn.output if turn else self.state.last_text(),
            "structured": turn.structured if turn else None,
            "reason": reason,
            "turns": state.used.turns,
            "sessions": state.session,
            "usage": state.usage.model_dump(),
            "used": state.used_now(),
            "effects": [effect.model_dump() for effect in state.all_effects()],
            "decisions": [entry.model_dump(mode="json") for entry in log.log],
            "artifacts": closing.artifacts,
            "checkpoint": checkpoint_view(state),
            "versions": self.versions_now(),
            "total": {name: total for name, total in totals.items() if total > 50},
            **({"parent": state.parent.model_dump()} if state.parent else {}),
            **({"workspace": self.workspace_left()} if state.opened.parent else {}),
        }

    def _carry_on(self, found: RunState) -> None:
        """Takes over the state of the execution before. A retry or a reset of this one is another branch."""
        fresh, self.state = self.state.branch, found
        if branches_off(workflow.info()):
            self.state.branch, self.state.branched = fresh, True
        self.closing = None if found.conclusion is None else found.conclusion.status
        self.arrive()

    def _reseeded(self, seed: int) -> None:
        """A reset: what follows is another branch of the same thread."""
        self.state.branch, self.state.branched, self.state.left = f"{seed & 0xFFFFFFFF:08x}", True, True

    @workflow.signal(dynamic=True, description="Any other signal: recorded as a rejected message")
    async def other(self, name: str, args: Sequence[RawValue]) -> None:
        """A signal of an unknown name is not lost in silence."""
        self.on_unknown_signal(name)


def branches_off(info: workflow.Info) -> bool:
    """Whether this history is a retry, or a reset of another one: the seed tells only of a reset in its middle."""
    return info.attempt > 1 or info.run_id != info.original_execution_run_id


def _broke(task: "asyncio.Task[None]") -> bool:
    return task.done() and not task.cancelled() and not isinstance(task.exception(), RollOver | None)
