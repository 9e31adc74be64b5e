"""One tool call, from its decision to its one answer."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import catalog
from workflows.gates import Gates, type_of
from workflows.records import Call, Item, ToolAnswer, ToolRequest
from workflows.requests import Request


class ToolCalls(Gates):
    """Runs calls and settles their answers. `busy` counts those that run: a rollover waits for them."""

    busy: int

    async def answer_call(self, call: Call) -> None:
        """Gives the call its one answer: what was decided at once, a person's word, or what the tool gave."""
        if call.decision == "answered":
            assert call.answer is not None
            self._settle(call, Item(ref=call.answer, call=call.id, tool=call.tool), call.answer.preview)
        elif call.decision == "allow":
            await self._run_tool(call, None)
        elif (request := await self.ask(call)).outcome == "answered":
            assert request.edited is not None
            self._settle(call, Item(ref=request.edited, call=call.id, tool=call.tool), request.edited.preview)
        elif request.outcome in ("approved", "edited"):
            await self._run_tool(request.edited_call or call, request)
        else:
            self._settle_text(call, _refusal(request))

    async def _run_tool(self, call: Call, approval: Request | None) -> None:
        """Runs a call to its answer; an unknown outcome goes to a person, as often as it takes."""
        review = self.state.requests.for_call(call.id, "review")
        if review is not None:  # the run rolled over while it was being asked about
            await self.decided(review)
        answer = await self._execute(call, approval, review)
        while answer.status == "review":
            answer = await self._execute(call, approval, await self.review(call, answer.reason or "nobody knows"))
        if answer.answer is not None:
            self._settle(call, Item(ref=answer.answer, call=call.id, tool=call.tool), answer.answer.preview)
        else:
            self._settle_text(call, f"Error: {answer.reason}")

    async def _execute(self, call: Call, approval: Request | None, review: Request | None) -> ToolAnswer:
        await self.wait(lambda: self.state.paused is None, "resume")
        request = ToolRequest(
            thread=self.state.opened.thread,
            branch=self.state.branch,
            head=self.state.at,
            bundle=self.state.opened.bundle.digest,
            call=call,
            edited=approval.edited if approval else None,
            approved_by=approval.by if approval else None,
            resolution=review.resolution if review else None,
        )
        self.busy += 1
        try:
            answer = await self.mendable(lambda: self._attempt(call, request))
        except ActivityError as error:
            if is_cancelled_exception(error) or type_of(error) in ("CheckpointConflict", "IncompatiblePayload"):
                raise
            answer = self._attempts_spent(call, error)
        finally:
            self.busy -= 1
        self.state.used.tool_calls += 1
        if answer.effect is not None:
            self.state.book_effect(answer.effect)
        return answer

    async def _attempt(self, call: Call, request: ToolRequest) -> ToolAnswer:
        if call.local and call.effect == "read":
            try:
                return await catalog.TOOL_READ.run_local(request, summary=call.summary)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise  # not quick enough, or it broke: the normal activity has time and retries
        queue = workflow.info().task_queue + catalog.TOOLS_QUEUE_SUFFIX
        return await catalog.TOOL_RUN.run(request, summary=call.summary, wait=catalog.tool_wait(call), queue=queue)

    def _attempts_spent(self, call: Call, error: ActivityError) -> ToolAnswer:
        """Every attempt ended without an answer. A read failed; of anything else nobody knows whether it happened."""
        said = f"failed after {catalog.TOOL_ATTEMPTS} attempts ({type_of(error)})"
        return ToolAnswer(status="error" if call.effect == "read" else "review", reason=said)

    def _settle(self, call: Call, item: Item, shown: str) -> None:
        self.state.book_answer(item, shown)
        self.publish()

    def _settle_text(self, call: Call, text: str) -> None:
        self._settle(call, Item(text=text, call=call.id, tool=call.tool), text[:200])


def _refusal(request: Request) -> str:
    if request.outcome == "expired":
        return "Nobody approved this call before its deadline (expired). It was not run."
    reason = f" Reason: {request.reason}" if request.reason else ""
    return f"{request.by} denied this call.{reason} It was not run."
