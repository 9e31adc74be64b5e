"""What people may say to a project, beside what they may say to each of its sessions."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from workflows import messages as m
from workflows.messages import Budget, Message, Pause, Resume, Rollover, Table, Text, UserMessage

TaskId = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class Reorder(Message):
    """Do these tasks first, in this order."""

    tasks: Annotated[list[TaskId], Field(min_length=1, max_length=200)]


class Drop(Message):
    """Take a task out of the project."""

    task: TaskId
    reason: Text | None = None


class Accept(Message):
    """The task passes, whatever checks and evaluator say."""

    task: TaskId
    reason: Text | None = None


class Reject(Message):
    """The task does not pass: it is to be done again, with all its tries and for this reason."""

    task: TaskId
    reason: Text | None = None


class Say(UserMessage):
    """Something to be told to the next session."""


class Retry(UserMessage):
    """The answer to the question what a session lacked: told to the next one, which is another try."""


def told(answer: m.Answer) -> str:
    """The text of an answer that is told to the next session. Raises MessageError."""
    if not isinstance(answer.value, str) or not answer.value.strip():
        raise m.MessageError(f"answer: {answer.code} takes a text")
    return answer.value


DECISIONS = ("approve", "deny", "answer", "resolve")
"""Decisions on requests. Of those of a session, which the project lists too, it says where to send them."""

KINDS: dict[str, type[Message]] = {
    "message": Say,
    "pause": Pause,
    "resume": Resume,
    "budget": Budget,
    "reorder": Reorder,
    "drop": Drop,
    "accept": Accept,
    "reject": Reject,
    "rollover": Rollover,
    **{name: m.MESSAGES[name] for name in DECISIONS},
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "message": {"text": "Keep it free of dependencies", "by": "alice"},
    "pause": {"by": "alice", "reason": "checking something"},
    "resume": {"by": "alice"},
    "budget": {"cost_usd": 20, "by": "alice"},
    "reorder": {"tasks": ["parse-dates"], "by": "alice"},
    "drop": {"task": "parse-dates", "by": "alice"},
    "accept": {"task": "parse-dates", "by": "alice", "reason": "good enough"},
    "reject": {"task": "parse-dates", "by": "alice", "reason": "time zones are lost"},
    "rollover": {"by": "alice"},
    **{name: m.EXAMPLES[name] for name in DECISIONS},
}

TABLE = Table(KINDS, EXAMPLES)
