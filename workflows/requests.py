"""Requests to people, and the log of what was decided: a small state machine with no clock of its own.

A request is open until the first decision on its code, or until its deadline. Then it is closed for good: the same
decision again is answered `ok`, another one is a conflict, and nothing reopens it. While edited arguments or an answer
are being judged the code is reserved: whoever comes in between is told so.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, Field

from workflows.child_records import Asked
from workflows.examples import example_of
from workflows.messages import Answer, Approve, Deny, Message, MessageError, Resolve, command
from workflows.records import Call, Ref, Resolution

L = TypeVar("L")

Kind = Literal["approval", "question", "review", "budget"]
ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""No 0, 1, I, L or O: codes are read aloud and typed by tired people."""
CODE = re.compile("[A-Z0-9]{1,20}")

KEPT = 50
"""How many closed requests and decisions a run carries; the rest is counted."""

KEPT_REJECTED = 10
"""How many rejected messages may stay among them as long as decisions do; more than that go first."""

KEPT_DENIED = 1000
"""How many denied calls a run knows again."""

SHOWN = 2000
"""The longest JSON, in characters, of arguments in the decision log; longer ones are previews."""

SOMEBODY = "YOUR-NAME"
"""Who decides, in a command, where nobody in particular has to."""

ANSWERS: dict[Kind, tuple[type[Message], ...]] = {
    "approval": (Approve, Deny),
    "question": (Answer, Deny),
    "review": (Resolve,),
    "budget": (),
}
MESSAGE_NAMES: dict[type[Message], str] = {Approve: "approve", Deny: "deny", Answer: "answer", Resolve: "resolve"}


class Request(BaseModel):
    """One thing that a person is asked. `call` is absent where the run itself asks (budget).

    `judging`: whose edit or answer is being checked; `decider`: the name in its commands; `told`: how many of the
    bundle's notices have been sent, in order; `told_late`: which ones beside those; `untold`: what is wrong with them.
    `task`: in a project, the task that is asked about; `choices`: what may be answered, where no call says it.
    """

    code: str
    kind: Kind
    question: str
    asked_at: datetime
    deadline: datetime | None = None
    call: Call | None = None
    judging: str | None = None
    outcome: Literal["approved", "edited", "denied", "expired", "answered", "resolved"] | None = None
    digest: str | None = None
    by: str | None = None
    reason: str | None = None
    edited: Ref | None = None
    edited_call: Call | None = None
    resolution: Resolution | None = None
    raise_to: dict[str, float] | None = None
    decider: str = SOMEBODY
    told: int = 0
    told_late: list[int] = Field(default_factory=list)
    untold: str | None = None
    task: str | None = None
    choices: list[str] = Field(default_factory=list)


class Logged(BaseModel):
    """One decision, as the query `decisions` and the result give it."""

    code: str | None
    kind: str | None
    operation_id: str | None
    decision: str
    by: str | None
    source: dict[str, str | None]
    at: datetime
    reason: str | None = None
    arguments_before: Any = None
    arguments_after: Any = None


class Requests(BaseModel):
    """All requests of a run, by code in the order in which they were made, and the decision log."""

    by_code: dict[str, Request] = Field(default_factory=dict)
    log: list[Logged] = Field(default_factory=list)
    logged: int = 0
    denials: int = 0
    denied_digests: list[str] = Field(default_factory=list)

    def open(self) -> list[Request]:
        """The requests that still wait."""
        return [request for request in self.by_code.values() if request.outcome is None]

    def for_call(self, call_id: str, kind: Kind) -> Request | None:
        """The newest request of that kind about a call, open or closed."""
        found = [r for r in self.by_code.values() if r.kind == kind and r.call is not None and r.call.id == call_id]
        return found[-1] if found else None

    def review_of(self, call: Call) -> Request | None:
        """The newest review about the call as the operation that it is now: a word about another one is none."""
        found = self.for_call(call.id, "review")
        about = found.call if found is not None else None
        return found if about is not None and about.operation_id == call.operation_id else None

    def add(self, request: Request) -> Request:
        """Files a new request."""
        self.by_code[request.code] = request
        return request

    def deny(self, request_digest: str | None) -> None:
        """Counts a denial, and remembers what was denied."""
        self.denials += 1
        if request_digest is not None and request_digest not in self.denied_digests:
            self.denied_digests.append(request_digest)
            del self.denied_digests[:-KEPT_DENIED]

    def settle(self) -> None:
        """At the end of a turn: of what is closed only what later messages are checked against stays, and the oldest
        beyond the kept number goes."""
        closed = [request for request in self.by_code.values() if request.outcome is not None]
        for request in closed:
            request.edited = request.edited_call = request.resolution = None
            if request.call is not None:
                request.call = request.call.model_copy(update={"arguments": None, "answer": None})
        for request in closed[: max(0, len(closed) - KEPT)]:
            del self.by_code[request.code]

    def note(self, entry: Logged) -> None:
        """Appends to the decision log, which keeps its last entries and counts all. A flood of messages that could not
        be used does not push out decisions."""
        append(self.log, entry, lambda each: each.decision == "rejected")
        self.logged += 1

    def check(self, message: Message, now: datetime, workflow_id: str) -> tuple[Request, bool]:
        """The request that a decision is for, and whether it only repeats what was decided.

        Raises MessageError for an unknown code, the wrong kind of message, a conflict, a late one, and one that comes
        while another is being judged.
        """
        name, code = MESSAGE_NAMES[type(message)], str(getattr(message, "code", ""))
        request = self.by_code.get(code)
        if request is None:
            raise MessageError(f"{name}: no request has the code {code}. {self._list_open(workflow_id)}")
        if type(message) not in ANSWERS[request.kind]:
            raise MessageError(f"{name}: {code} is of the kind {request.kind}. {self._list_open(workflow_id)}")
        if request.outcome is not None:
            return request, self._repeats(request, message, name)
        if request.judging is not None:
            raise MessageError(f"{name}: what {request.judging} sent for {code} is being checked: try again")
        if request.deadline is not None and now >= request.deadline:
            raise MessageError(f"{name}: {code} expired at {request.deadline.isoformat()}; nothing was changed")
        return request, False

    def _repeats(self, request: Request, message: Message, name: str) -> bool:
        if request.outcome != "expired" and decision_digest(message) == request.digest:
            return True
        who = f" by {request.by}" if request.by else ""
        raise MessageError(f"{name}: {request.code} is already {request.outcome}{who}; nothing was changed")

    def _list_open(self, workflow_id: str) -> str:
        lines = [line for request in self.open() for line in commands(request, workflow_id).values()]
        return "Open: " + " | ".join(lines[:6]) if lines else "Nothing is open in this run."


def append(log: list[L], entry: L, is_rejected: Callable[[L], bool]) -> None:
    """Appends to a log that keeps its last entries: of many rejected ones the oldest goes first."""
    log.append(entry)
    if len(log) > KEPT:
        rejected = [index for index, each in enumerate(log) if is_rejected(each)]
        del log[rejected[0] if len(rejected) > KEPT_REJECTED else 0]


def decision_digest(message: Message) -> str:
    """What makes two decisions the same one: all of it but who sent it and their note."""
    text = json.dumps(message.model_dump(exclude={"by", "note", "reason"}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def new_code(pick: Iterable[int], taken: Iterable[str]) -> str:
    """A code of four characters that is not taken, from a stream of random numbers below the alphabet's length."""
    used, numbers = set(taken), iter(pick)
    while True:
        code = "".join(ALPHABET[next(numbers)] for _ in range(4))
        if code not in used:
            return code


def commands(request: Request, workflow_id: str, longest: int | None = None) -> dict[str, str]:
    """The exact shell lines that decide a request. An answer whose JSON has more characters than `longest` is left for
    the person to write."""

    def line(name: str, **body: Any) -> str:
        return command(workflow_id, name, {"code": request.code, **body, "by": request.decider})

    if request.kind == "approval":
        return {"approve": line("approve"), "deny": line("deny", reason="why not")}
    if request.kind == "question":
        asked = (request.call.arguments or {}) if request.call else {}
        choices, schema = request.choices or asked.get("choices"), asked.get("schema")
        value = choices[0] if isinstance(choices, list) and choices else example_of(schema) if schema else "your answer"
        if longest is not None and len(json.dumps(value, ensure_ascii=False)) > longest:
            value = "your answer"
        return {"answer": line("answer", value=value)}
    if request.kind == "review":
        return {name: line("resolve", outcome=name) for name in ("happened", "not_happened", "give_up")}
    # whole numbers as such: those of turns are refused otherwise, and what was carried over has made 8 into 8.0
    raised = {name: int(limit) if limit == int(limit) else limit for name, limit in (request.raise_to or {}).items()}
    return {"raise": command(workflow_id, "budget", {**raised, "by": request.decider})}


def commands_below(asked: Asked, longest: int | None = None) -> dict[str, str]:
    """The same for what a child asks; none where it could not be asked so. They are made here, not taken from the
    report: whoever may signal can send one, and people paste what they are shown."""
    if asked.kind not in ("approval", "question", "review") or not CODE.fullmatch(asked.code):
        return {}
    call = Call(id="", tool="", decision="question")
    if isinstance(asked.arguments, dict):
        call = call.model_copy(update={"arguments": asked.arguments})
    kind, never = cast("Kind", asked.kind), datetime.fromtimestamp(0, UTC)
    request = Request(code=asked.code, kind=kind, question="", asked_at=never, call=call)
    return commands(request, asked.owner, longest)


def shown(value: Any) -> Any:
    """Arguments as the decision log keeps them: whole where they are short, else how their JSON begins."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
