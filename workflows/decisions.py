"""Decisions: what an approval, a denial, an answer or a resolution does to the request that it quotes the code of.

The first decision wins. Edited arguments and answers are judged by an activity; until then their code is reserved.
"""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows import messages as m
from workflows.catalog import JUDGE
from workflows.receiving import Source
from workflows.records import Call, Item, Resolution
from workflows.requests import Logged, Request, decision_digest, shown
from workflows.showing import Showing
from workflows.side_records import JudgeRequest, Verdict

POLICY: Source = {"via": "policy", "id": None}


class Decisions(Showing):
    """Requests and their decisions, and the log of both. `unread`: the inbox as it was last counted, with its length
    and bytes then."""

    unread: tuple[list[Item] | None, int, int] = (None, 0, 0)

    def reject(self, reason: str, source: Source, message: m.Message | None = None) -> None:
        """Records a message that could not be used, with the code that it quoted."""
        code = getattr(message, "code", None)
        request = self.state.requests.by_code.get(str(code))
        by = message.by if message is not None else None
        self.log(request, "rejected", by, source, reason=cut(reason), code=code)
        self.publish_attributes()
        self.draw_soon()

    def log(
        self,
        request: Request | None,
        decision: str,
        by: str | None,
        source: Source,
        reason: str | None = None,
        after: Any = None,
        code: str | None = None,
    ) -> None:
        """Writes one line of the decision log."""
        call = request.call if request else None
        self.state.requests.note(
            Logged(
                code=request.code if request else code,
                kind=request.kind if request else None,
                operation_id=call.operation_id if call else None,
                decision=decision,
                by=by,
                source=source,
                at=workflow.now(),
                reason=reason,
                arguments_before=_before(call) if call else None,
                arguments_after=shown(after),
            )
        )

    def log_denied_calls(self, calls: list[Call]) -> None:
        """Calls of a new turn that were denied at once: by policy, or since a person denied an equal one before."""
        for call in calls:
            if call.denied_by is None:
                continue
            if call.denied_by == "person":
                self.state.requests.deny(None)
            request = Request(code="", kind="approval", question="", asked_at=workflow.now(), call=call)
            self.log(request, "denied", None, POLICY, reason=call.reason)
            self.state.requests.log[-1].code = None

    def find(self, message: m.Message) -> tuple[Request, bool]:
        """The request that a decision is for, and whether it only repeats what was decided. Raises MessageError."""
        self._at_its_owner(str(getattr(message, "code", "")))
        request, repeats = self.state.requests.check(message, workflow.now(), workflow.info().workflow_id)
        if not repeats and not isinstance(message, m.Answer):
            self.check_decider(request, message)
        return request, repeats

    def check_decider(self, request: Request, message: m.Message) -> None:
        """Raises MessageError for who may not decide on what is no question."""
        opening = self.state.opening
        if opening is None:
            return
        if opening.approvers and message.by not in opening.approvers:
            names = ", ".join(opening.approvers)
            raise m.MessageError(f"{request.code}: {message.by} may not decide it; the bundle's approvers are: {names}")
        own = opening.distinct and message.by.casefold() == (opening.requester or "").casefold()
        if own and not isinstance(message, m.Deny):
            raise m.MessageError(f"{request.code}: {message.by} asked for this run, so somebody else has to decide it")

    def late_budget(self) -> m.MessageError | None:
        """At its deadline a limit was not raised in time, also where nobody was there to handle it."""
        for request in self.state.requests.open():
            if request.kind == "budget" and request.deadline is not None and workflow.now() >= request.deadline:
                when = request.deadline.isoformat()
                return m.MessageError(f"budget: {request.code} expired at {when}; nothing was changed")
        return None

    def unread_bytes(self) -> int:
        """What waits to be read. It is counted on, as thousands of messages may come in one workflow task."""
        inbox, (counted, count, size) = self.state.inbox, self.unread
        if counted is not inbox:
            count, size = 0, 0
        size += sum(len((item.text or "").encode()) for item in inbox[count:])
        self.unread = inbox, len(inbox), size
        return size

    def _at_its_owner(self, code: str) -> None:
        """Raises MessageError, with the commands that do it, for a code of a sub-agent: it decides, not its parent."""
        if code in self.state.requests.by_code:
            return
        for asked in self.state.family.pending():
            if asked.code == code:
                lines = " | ".join(asked.commands.values())
                raise m.MessageError(f"{code} is asked by the sub-agent {asked.owner}; send it there: {lines}")

    async def unreserved(self, message: m.Message) -> None:
        """Waits while what came before for the same code is being judged: a signal cannot be told to try again."""
        request = self.state.requests.by_code.get(str(getattr(message, "code", None)))
        while request is not None and request.judging is not None:
            await workflow.wait_condition(lambda: request.judging is None)

    async def approve(self, message: m.Approve, source: Source) -> str:
        """Runs the call, with edited arguments where there are some and they pass."""
        request, repeats = self.find(message)
        if repeats:
            return f"already {request.outcome}"
        if message.arguments is None:
            return self.decide(request, message, "approved", source, message.note)
        verdict = await self._judged(request, message, "arguments", message.arguments)
        assert request.call is not None
        request.edited = verdict.body
        request.edited_call = request.call.model_copy(
            update={
                "fingerprint": verdict.fingerprint,
                "request_digest": verdict.request_digest,
                "summary": verdict.summary or request.call.summary,
                "wants": verdict.wants,
                "arguments": None,
                "timeout": verdict.timeout or request.call.timeout,
                "effect": verdict.effect or request.call.effect,
            }
        )
        return self.decide(request, message, "edited", source, message.note, after=message.arguments)

    async def deny(self, message: m.Deny, source: Source) -> str:
        """Does not run the call."""
        request, repeats = self.find(message)
        if repeats:
            return f"already {request.outcome}"
        self.state.requests.deny(request.call.request_digest if request.call else None)
        return self.decide(request, message, "denied", source, message.reason)

    async def answer(self, message: m.Answer, source: Source) -> str:
        """Gives the answer to a question, if it fits."""
        request, repeats = self.find(message)
        if repeats:
            return f"already {request.outcome}"
        verdict = await self._judged(request, message, "answer", message.value)
        request.edited = verdict.body
        return self.decide(request, message, "answered", source, None, after=message.value)

    async def resolve(self, message: m.Resolve, source: Source) -> str:
        """Says what became of an operation."""
        request, repeats = self.find(message)
        if repeats:
            return f"already {request.outcome}"
        request.resolution = Resolution(
            outcome=message.outcome, result=message.result, by=message.by, code=request.code
        )
        return self.decide(request, message, "resolved", source, message.outcome)

    def decide(
        self, request: Request, message: m.Message, outcome: Any, source: Source, reason: str | None, after: Any = None
    ) -> str:
        """Closes the request for good, and writes that down."""
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


def _before(call: Call) -> Any:
    return call.arguments_preview if call.arguments is None else shown(call.arguments)


def cut(reason: str) -> str:
    """A reason as the log keeps it."""
    return reason if len(reason) <= 1000 else reason[:999] + "…"
