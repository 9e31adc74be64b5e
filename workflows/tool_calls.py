"""One tool call, from its decision to its one answer."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

from workflows import catalog
from workflows.delegation import Delegation
from workflows.display import doubt_of, left_text
from workflows.gates import Held, type_of
from workflows.records import Call, EffectRecord, Item, ToolAnswer, ToolRequest
from workflows.requests import Kind, Request
from workflows.rollover import RollOver

DOUBTS_ASK = "doubts-of-a-call-ask"
"""The patch since which a call whose outcome not even the look at the ledger could tell, as often as it was tried, goes
to a person. Before, that was tried for ever."""

LEFT_LOOKED_UP = "left-effects-looked-up"
"""The patch since which a run that was reset looks up what the path before made under the name of a call, before it
asks about the call and when it is refused."""


class ToolCalls(Delegation):
    """Runs calls and settles their answers. `ending`: the run was cancelled, so nothing more is asked of people."""

    ending: bool

    async def answer_call(self, call: Call) -> None:
        """Gives the call its one answer: what was decided at once, a person's word, or what the tool gave."""
        if call.decision == "answered":
            assert call.answer is not None
            self._settle(call, Item(ref=call.answer, call=call.id, tool=call.tool), call.answer.preview)
        elif call.decision == "allow" and self.state.requests.for_call(call.id, "approval") is None:
            await self._run_tool(call, None)
        else:  # an allowed call has a request when its number was taken
            kind: Kind = "question" if call.decision == "question" else "approval"
            asked = None if self.state.requests.for_call(call.id, kind) else await self._left(call)
            if asked is not None:
                reason = f"{call.reason}; {left_text(asked)}. Approved, that is gone on from; it is not made again"
                call = call.model_copy(update={"reason": reason})
            await self._as_decided(await self.ask(call), call)

    async def _left(self, call: Call) -> EffectRecord | None:
        """What the path before a reset made or began under this very name: the run has come to its number again."""
        if not self.state.left or call.operation_id is None or call.effect == "read":
            return None
        if not workflow.patched(LEFT_LOOKED_UP):
            return None
        plan = await self.mendable(lambda: self.undo_plan(call.operation_id, catalog.EFFECT_PLAN.lasting()))
        return plan.found

    async def _as_decided(self, request: Request, call: Call) -> None:
        if request.outcome == "answered":
            assert request.edited is not None
            self._settle(call, Item(ref=request.edited, call=call.id, tool=call.tool), request.edited.preview)
        elif request.outcome in ("approved", "edited"):
            await self._run_tool(request.edited_call or request.call or call, request)
        else:
            left = await self._left(call)
            if left is not None:
                self.state.abandoned[left.operation_id] = left.model_copy(update={"abandoned": True})
            self._settle_text(call, _refusal(request, left))

    async def _run_tool(self, call: Call, approval: Request | None) -> None:
        """Runs a call to its answer; an unknown outcome goes to a person, as often as it takes."""
        if call.id in self.state.family.children:  # the run rolled over while the child was at work
            await self._answer_by_child(call, approval)
            return
        review = self.state.requests.review_of(call)
        if review is not None:  # the run rolled over while it was being asked about
            await self.decided(review)
        answer = await self._execute(call, approval, review)
        while answer.status == "review":
            if self.ending:
                raise asyncio.CancelledError
            review = await self.review(_in_full(call, answer), doubt_of(call, answer))
            answer = await self._execute(call, approval, review)
        if answer.status in ("taken", "changed") and answer.renamed is not None:
            await self._ask_anew(answer.renamed, approval, _why_anew(answer))
        elif answer.child is not None:
            await self._answer_by_child(call, approval)
        elif answer.answer is not None:
            self._settle(call, Item(ref=answer.answer, call=call.id, tool=call.tool), answer.answer.preview)
        else:
            self._settle_text(call, f"Error: {answer.reason}")

    async def _answer_by_child(self, call: Call, approval: Request | None) -> None:
        """The end of a child is the answer of the call that started it."""
        edited_by = approval.by if approval is not None and approval.edited is not None else None
        end = await self.end_of_child(call.id, edited_by)
        assert end.answer is not None
        self._settle(call, Item(ref=end.answer, call=call.id, tool=call.tool), end.answer.preview)

    async def _ask_anew(self, call: Call, approval: Request | None, why: str) -> None:
        """Nothing was run. The call's number belongs to another request, made on a path that was left: under a number
        of its own it is a new action, and a person says whether that is wanted beside the old one. Or it would not be
        what was decided any more."""
        question = f"May the agent run {call.summary or call.tool} as {call.operation_id}? It asks because: {why}"
        asked = call.model_copy(update={"decision": "ask", "reason": why})
        request = self.request("approval", question, asked, call.ask_timeout or DAY)
        request.edited = approval.edited if approval else None
        await self.decided(request)
        await self._as_decided(request, call)

    async def _execute(self, call: Call, approval: Request | None, review: Request | None) -> ToolAnswer:
        """One execution. Of the calls that change the workspace one runs at a time, wherever their workers are."""
        while True:
            await self.wait(lambda: self.state.paused is None, "resume")
            try:
                if not call.writes:
                    return await self._execute_now(call, approval, review)
                waited = self.writers.locked()
                async with self.writers:
                    if waited and self.rolling:
                        raise RollOver
                    if self.state.paused is None:
                        return await self._execute_now(call, approval, review)
            except Held:
                continue

    async def _execute_now(self, call: Call, approval: Request | None, review: Request | None) -> ToolAnswer:
        terms, refused = self.terms_for(call)
        if refused is not None:
            return ToolAnswer(status="error", reason=refused)
        request = ToolRequest(
            thread=self.state.opened.thread,
            branch=self.state.branch,
            head=self.state.at,
            bundle=self.state.opened.bundle.digest,
            call=call,
            edited=approval.edited if approval else None,
            approved_by=approval.by if approval else None,
            resolution=review.resolution if review else None,
            files=self.state.files,
            terms=terms,
            trailers=self.state.opened.trailers,
        )
        self.busy += 1
        try:
            answer = await self._attempts(call, request)
        finally:
            self.busy -= 1
        self.state.used.tool_calls += 1
        self.state.book_change(answer.files)
        if answer.effect is not None:
            self._book(answer)
        if answer.child is not None:
            self.state.family.adopt(call.id, answer.child)
        else:
            self.state.family.reserved.pop(call.id, None)
        return answer

    def _book(self, answer: ToolAnswer) -> None:
        assert answer.effect is not None
        if answer.status == "taken" and answer.effect.status != "COMPENSATED":
            left = answer.effect.model_copy(update={"abandoned": True})
            self.state.abandoned[left.operation_id] = left
        elif answer.status != "taken":
            self.state.book_effect(answer.effect)

    async def _attempts(self, call: Call, request: ToolRequest) -> ToolAnswer:
        """All attempts. When none gave an answer: a read failed; of anything else the ledger is told, and a person."""
        try:
            return await self.mendable(lambda: self._attempt(call, request), pausable=True)
        except ActivityError as error:
            if is_cancelled_exception(error) or type_of(error) in ("CheckpointConflict", "IncompatiblePayload"):
                raise
            said = f"failed after {catalog.TOOL_ATTEMPTS} attempts ({type_of(error)})"
        if call.effect == "read":
            return ToolAnswer(status="error", reason=said)
        doubt = request.model_copy(update={"doubt": said})
        queue, said = workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX, f"what became of {call.summary}"[:100]
        wait = catalog.tool_wait(call.timeout)
        try:
            return await self.mendable(lambda: catalog.EFFECT_DOUBT.run(doubt, summary=said, wait=wait, queue=queue))
        except ActivityError as error:
            if is_cancelled_exception(error) or type_of(error) == "CheckpointConflict":
                raise
            if not workflow.patched(DOUBTS_ASK):
                raise
            return ToolAnswer(status="review", reason=f"no attempt could say ({type_of(error)})")

    async def _attempt(self, call: Call, request: ToolRequest) -> ToolAnswer:
        if call.local and call.effect == "read":
            try:
                return await catalog.TOOL_READ.run_local(request, summary=call.summary)
            except FailureError as error:  # a local one's may come unwrapped, as a timeout does at a replay
                if is_cancelled_exception(error):
                    raise  # not quick enough, or it broke: the normal activity has time and retries
        queue = workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX
        wait = catalog.tool_wait(call.timeout)
        return await catalog.TOOL_RUN.run(request, summary=call.summary, wait=wait, queue=queue)

    def _settle(self, call: Call, item: Item, shown: str) -> None:
        self.state.book_answer(item, shown)
        self.publish()

    def _settle_text(self, call: Call, text: str) -> None:
        self._settle(call, Item(text=text, call=call.id, tool=call.tool), text[:200])


DAY = 86_400.0
TAKEN = "a path that was left has used its number for another request, which may have happened"
UNDONE = "it was made before and undone since, and would be made anew"
CHANGED = "the tool changed after the call was decided on, so what would run is not what was decided"


def _why_anew(answer: ToolAnswer) -> str:
    if answer.status == "changed":
        return CHANGED
    return UNDONE if answer.effect is not None and answer.effect.status == "COMPENSATED" else TAKEN


def _in_full(call: Call, answer: ToolAnswer) -> Call:
    """The call with the arguments that the ledger shows, where its own are cut short."""
    request = answer.effect.canonical_request if answer.effect else None
    arguments = request.get("arguments") if isinstance(request, dict) else None
    return call if call.arguments is not None or arguments is None else call.model_copy(update={"arguments": arguments})


def _refusal(request: Request, left: EffectRecord | None) -> str:
    run = "It was not run." if left is None else f"It was not run now, but {left_text(left)}. It is in the world."
    if request.outcome == "expired":
        return f"Nobody approved this call before its deadline (expired). {run}"
    reason = f" Reason: {request.reason}" if request.reason else ""
    return f"{request.by} denied this call.{reason} {run}"
