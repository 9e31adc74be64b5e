"""What a project itself asks of people: requests with codes, as a run's.

`answer` decides by the code. The messages that do the same without one (`accept`, `reject`, `drop`, `resume`, `budget`)
close the request too, so that a decision that comes later is a conflict and not another decision.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from temporalio import workflow

from workflows import messages as m
from workflows import project_messages as pm
from workflows.display import enough, reached_text
from workflows.forks import mint_code
from workflows.notices import NoticeRequest
from workflows.project_board import asked_view
from workflows.project_showing import ProjectShowing
from workflows.receiving import Source
from workflows.requests import Kind, Logged, Request, decision_digest
from workflows.tasks import Task
from workflows.telling import Telling

CHOICES: dict[str, type[pm.Accept | pm.Reject | pm.Drop]] = {"accept": pm.Accept, "reject": pm.Reject, "drop": pm.Drop}
"""What may be answered of a task."""


class Word(BaseModel):
    """An answer about a task, with a reason."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    decision: Literal["accept", "reject", "drop"]
    reason: m.Text | None = None


def word_of(message: m.Answer) -> Word:
    """What an answer says of a task: one of the choices, or an object (or its JSON as a text) with a reason. Raises
    MessageError."""
    value = message.value
    try:
        if isinstance(value, str):
            value = {"decision": value} if value in CHOICES else m.loads(value)
        return Word.model_validate(value)
    except (ValidationError, ValueError):
        raise m.MessageError(
            f'answer: {message.code} takes accept, reject or drop, or {{"decision": "reject", "reason": "…"}}'
        ) from None


class ProjectAsks(ProjectShowing, Telling):
    """Opens requests, and closes them."""

    def notices(self) -> list[float]:
        """The times of the coder's bundle, in seconds from the request."""
        return self.project.opened.notices

    def notice_of(self, request: Request, stage: int) -> NoticeRequest:
        """What people are told of a request."""
        opening = self.project.opened
        return NoticeRequest(
            thread=opening.thread,
            bundle=opening.roles.coder.digest,
            item=asked_view(request, workflow.info().workflow_id),
            goal=opening.brief.preview,
            stage=stage,
        )

    def ask_about(self, task: Task) -> Request:
        """What of a task that was rejected or broken too often?"""
        reasons = "\n".join(f"- {reason}" for reason in task.reasons[-3:])
        times = f"rejected {task.rejected} times, broken {task.broken} times"
        return self._question(f"What of the task {task.id} ({task.title})? It was {times}:\n{reasons}", task.id)

    def ask_for_word(self, problem: str) -> Request:
        """What now, where a plan or a grade could not be had?"""
        step = self.project.course.next()
        if step.kind == "grade":
            task = step.tasks[0]
            return self._question(f"What of the result of {task}? {problem}\n`resume` asks for another grade.", task)
        return self._question(f"What is the next session to be told? {problem}", None)

    def _question(self, text: str, task: str | None) -> Request:
        """The open question about this; a new one where there is none, as after a rollover from an earlier release."""
        asked = [each for each in self.project.requests.open() if each.kind == "question" and each.task == task]
        return asked[0] if asked else self._open("question", text, task=task, choices=list(CHOICES) if task else [])

    def ask_for_budget(self, reached: dict[str, float], until: datetime) -> Request:
        """More of the limits that are reached?"""
        asked = [each for each in self.project.requests.open() if each.kind == "budget"]
        more = enough(reached, self.project.used_now())
        return asked[0] if asked else self._open("budget", reached_text(reached), deadline=until, raise_to=more)

    def _open(self, kind: Kind, question: str, **more: Any) -> Request:
        requests, now = self.project.requests, workflow.now()
        code = mint_code(requests.by_code)
        request = requests.add(Request(code=code, kind=kind, question=question, asked_at=now, **more))
        self.tell(request)
        return request

    def expire(self, request: Request, reason: str) -> None:
        """Nobody decided, and the project goes on or ends."""
        if request.outcome is None:
            request.outcome, request.reason = "expired", reason
            self._log(request, "expired", None, {"via": "timer", "id": None}, reason)

    def find(self, message: m.Message) -> tuple[Request, bool]:
        """The project's own request that a decision is for, and whether it only repeats what was decided. Raises
        MessageError, with the commands that are right, for any other."""
        code, workflow_id = str(getattr(message, "code", "")), workflow.info().workflow_id
        request = self.project.requests.by_code.get(code)
        if request is None:
            raise m.MessageError(self._owner_of(code))
        if isinstance(message, m.Deny):
            raise m.MessageError(f"deny: {code} is of the kind {request.kind}; `perdure pending` has its commands")
        if isinstance(message, m.Answer) and request.task is not None:
            message = message.model_copy(update={"value": word_of(message).decision})
        elif isinstance(message, m.Answer) and request.kind == "question":
            pm.told(message)
        return self.project.requests.check(message, workflow.now(), workflow_id)

    def _owner_of(self, code: str) -> str:
        for asked in self.project.family.pending():
            if asked.code == code:
                lines = " | ".join(asked.commands.values())
                return f"{code} is asked by the session {asked.owner}; send it there: {lines}"
        return f"neither the project nor a session asks for {code}; what they ask for: perdure pending"

    def settle(self, message: m.Message, source: Source) -> None:
        """Closes the requests that a message has decided."""
        for request in self.project.requests.open():
            if request.kind == "budget" and isinstance(message, m.Budget):
                reached = self.project.reached()
                request.question, request.raise_to = reached_text(reached), enough(reached, self.project.used_now())
                if not reached:
                    self._decide(request, "resolved", message, source)
            elif _decides(message, request, self.project.problem is not None):
                self._decide(request, "answered", message, source)

    def _decide(self, request: Request, outcome: Any, message: m.Message, source: Source) -> None:
        request.outcome, request.by = outcome, message.by
        for value in [name for name, kind in CHOICES.items() if isinstance(message, kind)]:
            request.digest = decision_digest(m.Answer(code=request.code, value=value, by=message.by))
        if isinstance(message, pm.Retry):
            request.digest = decision_digest(m.Answer(code=request.code, value=message.text, by=message.by))
        self._log(request, outcome, message.by, source, getattr(message, "reason", None), message)

    def _log(
        self,
        request: Request,
        decision: str,
        by: str | None,
        source: Source,
        reason: str | None,
        message: m.Message | None = None,
    ) -> None:
        self.project.requests.note(
            Logged(
                code=request.code,
                kind=request.kind,
                operation_id=None,
                decision=decision,
                by=by,
                source=source,
                at=workflow.now(),
                reason=reason,
                arguments_after=message and message.model_dump(exclude_none=True, exclude={"by", "reason"}),
            )
        )


def meant(request: Request, message: m.Answer) -> tuple[str, m.Message]:
    """The plain message that an answer stands for, with its name."""
    if request.task is None:
        return "message", pm.Retry(text=pm.told(message), by=message.by)
    word = word_of(message)
    return word.decision, CHOICES[word.decision](task=request.task, by=message.by, reason=word.reason)


def _decides(message: m.Message, request: Request, parked: bool) -> bool:
    if isinstance(message, pm.Accept | pm.Reject | pm.Drop):
        return message.task == request.task
    return parked and request.kind == "question" and isinstance(message, m.Resume | pm.Retry)
