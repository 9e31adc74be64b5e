"""How a run asks people: requests with codes and deadlines, and what follows from silence."""

from datetime import timedelta

from temporalio import workflow

from workflows.display import pending_view, question_for
from workflows.forks import mint_code
from workflows.handlers import Handlers
from workflows.notices import NoticeRequest
from workflows.records import Call
from workflows.requests import SOMEBODY, Kind, Request, shown
from workflows.telling import Telling

NOTICES_APART = "notices-apart"
"""The patch since which each of a request's notices has its own time, and none waits for one that cannot be told."""


class People(Handlers, Telling):
    """Opens requests and waits for their decisions."""

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

    def notices(self) -> list[float]:
        """The bundle's times, in seconds from the request."""
        return self.state.opened.notices

    def notice_of(self, request: Request, stage: int) -> NoticeRequest:
        """What people are told of a request."""
        opening = self.state.opened
        item = pending_view(request, workflow.info().workflow_id, self.state)
        item["arguments"] = shown(item["arguments"])
        return NoticeRequest(
            thread=opening.thread, bundle=opening.bundle.digest, item=item, goal=opening.goal, stage=stage
        )

    async def tell_all(self, request: Request) -> None:
        """One after the other, in runs that passed here before each had its own time."""
        if workflow.patched(NOTICES_APART):
            await super().tell_all(request)
            return
        for stage, after in enumerate(self.notices()[request.told :], request.told):
            if not await self.open_until(request, stage, after):
                return
            await self.send_notice(request, stage)
            request.told = stage + 1
            self.publish()
