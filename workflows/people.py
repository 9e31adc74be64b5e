"""How a run asks people: requests with codes and deadlines, and what follows from silence."""

import asyncio
import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.catalog import NOTIFY, TOOLS_QUEUE_SUFFIX
from workflows.display import pending_view, question_for
from workflows.forks import mint_code
from workflows.handlers import Handlers
from workflows.notices import NoticeRequest
from workflows.records import Call
from workflows.requests import SOMEBODY, Kind, Request, shown

NOTICES_APART = "notices-apart"
"""The patch since which each of a request's notices has its own time, and none waits for one that cannot be told."""


class People(Handlers):
    """Opens requests and waits for their decisions. `telling`: the notices that are on their way or due later."""

    telling: list["asyncio.Task[None]"]

    async def ask(self, call: Call) -> Request:
        """Asks whether a call may run, or what its question asks; the same request again after a rollover."""
        kind: Kind = "question" if call.decision == "question" else "approval"
        request = self.state.requests.for_call(call.id, kind)
        if request is None:
            request = self.request(kind, question_for(call), call, call.ask_timeout)
        await self.decided(request)
        return request

    async def review(self, call: Call, question: str) -> Request:
        """Asks what became of a call, without a deadline: only a person's word ends it."""
        request = self.request("review", question, call, None)
        await self.decided(request)
        return request

    def request(self, kind: Kind, question: str, call: Call | None, seconds: float | None) -> Request:
        """Opens a request with a new code, which expires after `seconds` where given."""
        now, code = workflow.now(), mint_code(self.state.requests.by_code)
        request = Request(code=code, kind=kind, question=question, call=call, asked_at=now)
        request.decider = SOMEBODY if kind in ("question", "budget") else self._decider()
        if seconds is not None:
            request.deadline = now + timedelta(seconds=seconds)
        self.state.requests.add(request)
        self.publish()
        self.tell(request)
        self.take_early(code)
        return request

    def _decider(self) -> str:
        """Whose name stands in the commands: the first who may decide, where the bundle names some."""
        opening = self.state.opened
        own = (opening.requester or "").casefold() if opening.distinct else None
        return next((name for name in opening.approvers if name.casefold() != own), SOMEBODY)

    async def decided(self, request: Request) -> None:
        """Waits for a decision or the deadline. A decision handled before the timer wins; else silence is a no.

        An edit that was sent in time wins even if it is still being judged at the deadline."""
        if request.deadline is not None and request.outcome is None:
            try:
                await workflow.wait_condition(
                    lambda: request.outcome is not None,
                    timeout=max(request.deadline - workflow.now(), timedelta(0)),
                    timeout_summary=f"deadline of {request.kind} {request.code}",
                )
            except TimeoutError:
                await workflow.wait_condition(lambda: request.judging is None)
                self.expire(request)
        await workflow.wait_condition(lambda: request.outcome is not None)
        self.publish()

    def expire(self, request: Request) -> None:
        """Silence is a no."""
        if request.outcome is None:
            request.outcome, request.reason = "expired", "expired"
            self.log(request, "expired", None, {"via": "timer", "id": None}, reason="expired")

    def tell(self, request: Request) -> None:
        """Begins to send the bundle's notices of a request. Nothing waits for them, and nothing fails with them."""
        if self.state.opened.notices:
            self.telling = [task for task in self.telling if not task.done()]
            self.telling.append(asyncio.create_task(self._tell(request)))

    async def _tell(self, request: Request) -> None:
        """At each of the bundle's times, for as long as the request is open. One that cannot be told holds up none."""
        if workflow.patched(NOTICES_APART):
            stages = enumerate(self.state.opened.notices)
            due = [each for each in stages if each[0] >= request.told and each[0] not in request.told_late]
            await asyncio.gather(*(self._tell_at(request, *each) for each in due))
            return
        for stage, after in enumerate(self.state.opened.notices[request.told :], request.told):
            left = request.asked_at + timedelta(seconds=after) - workflow.now()
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: request.outcome is not None,
                    timeout=max(left, timedelta(0)),
                    timeout_summary=f"notice {stage + 1} of {request.kind} {request.code}",
                )
            if request.outcome is not None:
                return
            await self._notice(request, stage)
            request.told = stage + 1
            self.publish()

    async def _tell_at(self, request: Request, stage: int, after: float) -> None:
        left = request.asked_at + timedelta(seconds=after) - workflow.now()
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: request.outcome is not None,
                timeout=max(left, timedelta(0)),
                timeout_summary=f"notice {stage + 1} of {request.kind} {request.code}",
            )
        if request.outcome is None:
            await self._notice(request, stage)
            request.told_late.append(stage)
            self.publish()

    async def _notice(self, request: Request, stage: int) -> None:
        opening = self.state.opened
        item = pending_view(request, workflow.info().workflow_id, self.state)
        item["arguments"] = shown(item["arguments"])
        asked = NoticeRequest(
            thread=opening.thread, bundle=opening.bundle.digest, item=item, goal=opening.goal, stage=stage
        )
        queue = workflow.info().task_queue + TOOLS_QUEUE_SUFFIX
        try:
            noticed = await NOTIFY.run(asked, summary=f"tell people of {request.kind} {request.code}", queue=queue)
            if noticed.failed:
                request.untold = "; ".join(noticed.failed)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            request.untold = "no notice could be sent"
