"""How a run asks people: requests with codes and deadlines, and what follows from silence."""

from datetime import timedelta

from temporalio import workflow

from workflows.display import question_for
from workflows.handlers import Handlers
from workflows.records import Call
from workflows.requests import ALPHABET, Kind, Request, new_code


class People(Handlers):
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
        random, now = workflow.random(), workflow.now()
        code = new_code(iter(lambda: random.randrange(len(ALPHABET)), -1), self.state.requests.by_code)
        request = Request(code=code, kind=kind, question=question, call=call, asked_at=now)
        if seconds is not None:
            request.deadline = now + timedelta(seconds=seconds)
        self.state.requests.add(request)
        self.publish()
        return request

    async def decided(self, request: Request) -> None:
        """Waits for a decision or the deadline. A decision handled before the timer wins; else silence is a no."""
        left = None if request.deadline is None else request.deadline - workflow.now()
        if left is not None and request.outcome is None and request.judging is None:
            try:
                await workflow.wait_condition(
                    lambda: request.outcome is not None,
                    timeout=max(left, timedelta(0)),
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
