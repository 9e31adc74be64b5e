"""Undoing effects: by a person's message while the run goes on, or by the bundle's word when it fails or is cancelled.

One after the other, the last effect first. One that fails is a person's to judge, and the ones before it wait for that.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import catalog
from workflows.decisions import POLICY
from workflows.gates import Gates, Held, type_of
from workflows.keys import undo_id
from workflows.records import Call, Item, ToolAnswer
from workflows.requests import Request
from workflows.rollover import RollOver
from workflows.undoing_records import UndoRequest, UndoStep

DOUBTS_PARK = "doubts-of-an-undoing-park"
"""The patch since which an undoing that no attempt could end, and whose look at the ledger fails too, parks the run or
goes to a person. Before, it left the queue of undoings without anybody who took the next one."""


ENDS_WHOLE = "endings-are-not-cut-off"
"""The patch since which a run that is cancelled while it already ends, or while it waits for an undoing to roll over,
does that to its end first. Before, it left an undoing to itself, or what was still to be undone."""


class Undoing(Gates):
    """Takes the queued steps. `busy` counts what runs, tools too: a rollover waits for it. `writers` is held by what
    changes the workspace."""

    busy: int
    writers: asyncio.Lock

    async def undo_beside(self, loop: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Runs the loop, with the queue beside it. Leaves with what the loop leaves with."""
        beside = asyncio.create_task(self._serve())
        try:
            result = await loop
        except GeneratorExit:  # the worker throws the run away: nothing can be asked or waited for any more
            raise
        except BaseException:
            if not evicted():
                await self._stop(beside)
            raise
        await self._stop(beside)
        return result

    async def _stop(self, beside: "asyncio.Task[None]") -> None:
        if await self.outlast(self._stopped(beside)):
            raise asyncio.CancelledError

    async def _stopped(self, beside: "asyncio.Task[None]") -> None:
        await workflow.wait_condition(lambda: self.busy == 0)
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)

    async def outlast(self, work: Coroutine[Any, Any, None]) -> bool:
        """Does it to its end, though the run is cancelled meanwhile (once: a run is cancelled no second time). Tells
        whether it was."""
        if evicted():
            work.close()
            return False
        task = asyncio.create_task(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() or evicted():
                raise
            if not workflow.patched(ENDS_WHOLE):
                task.cancel()
                await task  # which may have taken no notice: an activity that comes to its end does not
                return False
            await task
            return True
        return False

    async def undo_at_end(self) -> None:
        """When the run fails or is cancelled: all of it, where the bundle says so; else what waits is dropped."""
        opening = self.state.opening
        if opening is None or evicted():
            return
        if opening.on_end != "compensate":
            if self.state.undo:
                left = ", ".join(step.operation_id for step in self.state.undo[:10])
                said = f"the run ended before it had undone {len(self.state.undo)}: {left}"
                self.log(None, "rejected", self.state.undo[0].by, POLICY, reason=said)
            return
        try:
            plan = await self.undo_plan(None, catalog.EFFECT_PLAN.lasting())
        except ActivityError as error:  # the ledger keeps what happened; `perdure effects` shows it
            self.log(None, "rejected", None, POLICY, reason=f"on_end: nothing was undone ({type_of(error)})")
            return
        if plan.over:
            said = f"on_end: {', '.join(plan.over[:10])} was not undone: its undoing was tried before, and has ended"
            self.log(None, "rejected", None, POLICY, reason=said)
        self.state.undo = plan.steps
        while self.state.undo:
            try:
                await self._step(self.state.undo[0])
            except RollOver:
                self.rolling = False  # a run that ends does not continue as new

    async def _serve(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self.state.undo))
            step = self.state.undo[0]
            said = await self._step(step)
            who = f" at the word of {step.by}" if step.by else ""
            self.state.facts.append(Item(text=f"[system] {said}{who}."))  # no reason for a turn of its own

    async def _step(self, step: UndoStep) -> str:
        """Takes the first step of the queue to its end, and gives what became of it."""
        calls = [_call(step), _in_doubt(step)] if step.doubt else [_call(step)]
        asked = (self.state.requests.review_of(call) for call in calls)
        review = next((each for each in asked if each is not None), None)
        if review is not None:  # the run rolled over while it was being asked about
            await self.decided(review)
        answer = await self._attempt_undo(step, review)
        while answer.status == "review":
            review = await self.review(*_question(step, answer))
            answer = await self._attempt_undo(step, review)
        self.state.undo = self.state.undo[1:]
        self.publish()
        status = answer.effect.status if answer.effect is not None else ""
        if status == "COMPENSATED":
            return f"{step.operation_id} was undone"
        return f"{step.operation_id} is {status}" if step.doubt else f"{step.operation_id} could not be undone"

    async def _attempt_undo(self, step: UndoStep, review: Request | None) -> ToolAnswer:
        while (answer := await self._undo_unless_held(step, review)) is None:
            await self.wait(lambda: self.state.paused is None, "resume")
        self.state.book_change(answer.files)
        for effect in (answer.effect, answer.undoing):
            if effect is not None:
                self.state.book_effect(effect)
        self.publish()
        return answer

    async def _undo_unless_held(self, step: UndoStep, review: Request | None) -> ToolAnswer | None:
        self.busy += 1
        try:
            async with self.writers:
                return await self._attempts_undo(step, review)
        except Held:
            return None
        finally:
            self.busy -= 1

    async def _attempts_undo(self, step: UndoStep, review: Request | None) -> ToolAnswer:
        request = UndoRequest(
            thread=self.state.opened.thread,
            bundle=self.state.opened.bundle.digest,
            step=step,
            resolution=review.resolution if review is not None else None,
            about=review.call.operation_id if review is not None and review.call is not None else None,
            files=self.state.files,
            at=self.state.at.sha256,
        )
        try:
            return await self.mendable(lambda: self._undo(request), pausable=True)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            doubt = request.model_copy(update={"doubt": f"every attempt ended without an answer ({type_of(error)})"})
            if not workflow.patched(DOUBTS_PARK):
                return await self._undo(doubt)
        try:
            return await self.mendable(lambda: self._undo(doubt))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return ToolAnswer(status="review", reason=f"no attempt could say ({type_of(error)})")

    async def _undo(self, request: UndoRequest) -> ToolAnswer:
        queue = workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX
        wait = catalog.tool_wait(request.step.timeout)
        return await catalog.EFFECT_UNDO.run(
            request, summary=f"undo {request.step.operation_id}", wait=wait, queue=queue
        )


def evicted() -> bool:
    """Whether this worker lets the run go, which looks like a cancellation: then nothing may be waited for. A run that
    was really cancelled has a reason, and one that fails is in no task that is being cancelled."""
    task = asyncio.current_task()
    return workflow.cancellation_reason() is None and task is not None and task.cancelling() > 0


def is_undoing(call: Call | None) -> bool:
    """Whether a request is about the undoing of an operation."""
    return call is not None and call.id == call.operation_id


def _call(step: UndoStep) -> Call:
    """The undoing as a request to a person shows it."""
    operation = undo_id(step.operation_id)
    return Call(
        id=operation,
        tool=step.tool,
        decision="ask",
        summary=f"undo {step.operation_id}",
        effect="once",
        operation_id=operation,
        arguments={"undo": step.operation_id},
    )


def _in_doubt(step: UndoStep) -> Call:
    """The operation itself, as a request to a person shows it."""
    operation = step.operation_id
    return _call(step).model_copy(
        update={"id": operation, "operation_id": operation, "summary": f"what became of {operation}", "arguments": None}
    )


def _question(step: UndoStep, answer: ToolAnswer) -> tuple[Call, str]:
    """What a person is asked, and about what."""
    effect, why = answer.effect, answer.reason or "nobody knows"
    if step.doubt and effect is not None and effect.status in ("PREPARED", "IN_REVIEW"):
        known = f"Attempts: {effect.attempts}, prepared at {effect.prepared_at}, key {effect.idempotency_key}."
        asked = f"Did {step.operation_id} happen? {why}. {known}"
        return _in_doubt(step), f"{asked} A reset left it, so that it is not made any more if it did not."
    return _call(step), f"Was {step.operation_id} ({step.tool}) undone? {why}"
