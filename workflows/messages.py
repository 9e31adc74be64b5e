"""What people may say to a run: one schema a message, and a strict reader that names what is wrong.

Every message is an update and a signal of the same name with the same JSON. Only a well-formed message counts; nothing
is guessed from a malformed one.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from temporalio.common import RawValue

from workflows.edits import Edits
from workflows.strict_json import decode_json as decode_json
from workflows.strict_json import loads as loads

MESSAGE_BYTES = 8 * 1024 * 1024
"""The longest message, and the most that may wait to be read: a run carries it until then."""

RESULT_BYTES = 16 * 1024
"""The longest result that a person may give for an operation that happened."""

MOST = 10**15
"""No limit is larger: numbers beyond it are mistakes, and some are too large for a float."""

UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
    "|(^|[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d]$"
)
"""Control characters, and those that are not seen or turn the text around: a name with them could pass for another.
Joiners have their place inside some scripts and emoji, and nowhere else."""

BLANK = re.compile(
    "[\u00a0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u206a-\u206f\u2800\u3164\ufe00-\ufe0d"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|(^|[^\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)
"""More of them: fillers, blanks, tags, and the marks that choose how an emoji looks where none stands before. `Message`
itself lets them pass, since a run may have taken such a name before."""


def _visible(name: str) -> str:
    if UNSEEN.search(name) or not name.strip():
        raise ValueError("it holds characters that cannot be seen, or nothing else")
    return name


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


def _short(result: Any) -> Any:
    if len(json.dumps(result)) > RESULT_BYTES:
        raise ValueError(f"it is longer than {RESULT_BYTES} bytes as JSON")
    return result


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_visible)]
Code = Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True, min_length=1, max_length=20)]
Text = Annotated[str, StringConstraints(max_length=10_000)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Amount = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]


class MessageError(Exception):
    """A message that cannot be used. The text says why and holds a correct command line."""


class Message(BaseModel):
    """Unknown fields are refused by name, and types are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    by: Name


class Approve(Message):
    """Run the call, with `arguments` instead of the asked ones where they are given."""

    code: Code
    note: Text | None = None
    arguments: dict[str, Any] | None = None


class Deny(Message):
    """Do not run the call. Final for that request."""

    code: Code
    reason: Text | None = None


class Answer(Message):
    """The answer to a question of the agent."""

    code: Code
    value: Any


class Resolve(Message):
    """What became of an operation whose outcome is unknown."""

    code: Code
    outcome: Literal["happened", "not_happened", "give_up"]
    result: Annotated[Any, AfterValidator(_short)] = None


class UserMessage(Message):
    """A user message, read before the next turn."""

    text: Annotated[str, StringConstraints(min_length=1), AfterValidator(_not_blank)]


class Pause(Message):
    """Hold before the next turn or tool."""

    reason: Text | None = None


class Resume(Message):
    """Go on after a pause, or try again what a parked run waits for."""

    reason: Text | None = None


class Budget(Message):
    """New totals for the limits that are named; the others stay."""

    turns: Count | None = None
    tokens: Count | None = None
    tool_calls: Count | None = None
    cost_usd: Amount | None = None
    seconds: Amount | None = None


class Finish(Message):
    """End an interactive run after the work at hand."""


class Rollover(Message):
    """Continue as new now, on the current worker version."""


class NewSession(Message):
    """Begin a new session now: a handoff is made, and the next turn starts from it."""


class Upgrade(Message):
    """Move to another version of the bundle at the next session."""

    bundle: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class Compensate(Message):
    """Undo one operation, or all of them, the last effect first. `branch`: whose "all" is meant, after a reset."""

    operation_id: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    branch: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None


class Edit(Message):
    """Change what a paused or parked run was told: it goes on from that, on a branch of its own."""

    edits: Annotated[Edits, Field(min_length=1)]
    checkpoint: Count | None = None


MESSAGES: dict[str, type[Message]] = {
    "approve": Approve,
    "deny": Deny,
    "answer": Answer,
    "resolve": Resolve,
    "message": UserMessage,
    "pause": Pause,
    "resume": Resume,
    "budget": Budget,
    "finish": Finish,
    "rollover": Rollover,
    "handoff": NewSession,
    "compensate": Compensate,
    "upgrade": Upgrade,
    "edit": Edit,
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "approve": {"code": "K7Q2", "by": "alice"},
    "deny": {"code": "K7Q2", "by": "alice", "reason": "too dear"},
    "answer": {"code": "K7Q2", "value": "yes", "by": "alice"},
    "resolve": {"code": "K7Q2", "outcome": "happened", "by": "alice"},
    "message": {"text": "Look at the prices too", "by": "alice"},
    "pause": {"by": "alice", "reason": "checking something"},
    "resume": {"by": "alice"},
    "budget": {"turns": 100, "by": "alice"},
    "finish": {"by": "alice"},
    "rollover": {"by": "alice"},
    "handoff": {"by": "alice"},
    "compensate": {"operation_id": "run-83.9c41d07be2f5:create_customer:4", "by": "alice"},
    "upgrade": {"bundle": "NAME@VERSION", "by": "alice"},
    "edit": {"edits": [{"append": "user", "content": "Use the second list"}], "by": "alice"},
}


@dataclass(frozen=True)
class Table:
    """The messages of one kind of workflow, by name, with an example of each."""

    kinds: Mapping[str, type[Message]]
    examples: Mapping[str, dict[str, Any]]

    def description(self, name: str) -> str:
        """What the Web UI shows beside a message: its meaning and an example of its JSON."""
        return f"{self.kinds[name].__doc__} Input: `{json.dumps(self.examples[name])}`"


TABLE = Table(MESSAGES, EXAMPLES)


def command(workflow_id: str, name: str, body: dict[str, Any], how: Literal["update", "signal"] = "update") -> str:
    """The shell line that sends the message, quoted for a POSIX shell; for bash where the id holds what is not seen."""
    plain = json.dumps(body, ensure_ascii=False)
    text = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in plain)  # it is there to be copied
    verb = ["update", "execute"] if how == "update" else ["signal"]
    words = ["temporal", "workflow", *verb, "--workflow-id", workflow_id, "--name", name, "--input", text]
    return " ".join(shlex.quote(word) if word.isprintable() else _spelled(word) for word in words)


def _spelled(word: str) -> str:
    """The word for bash, with the bytes of what is not printed written out."""
    safe = (each if each.isprintable() and each not in "'\\" else None for each in word)
    spelled = (each or "".join(f"\\x{byte:02x}" for byte in raw.encode()) for each, raw in zip(safe, word, strict=True))
    return f"$'{''.join(spelled)}'"


def parse(name: str, workflow_id: str, payloads: Sequence[RawValue | None], table: Table = TABLE) -> Message:
    """Reads one message. Raises MessageError for anything that is not exactly it."""
    try:
        if len(payloads) != 1:
            raise ValueError(f"one JSON object is wanted, {len(payloads)} inputs were given")
        given = payloads[0]
        if isinstance(given, RawValue) and len(given.payload.data) > MESSAGE_BYTES:
            raise ValueError(f"it is {len(given.payload.data)} bytes long, and {MESSAGE_BYTES} are the most")
        body = decode_json(given)
        if isinstance(body, str):  # the Web UI sends what was typed as a JSON string
            try:
                body = loads(body)
            except ValueError as error:
                raise ValueError(f"a JSON object is wanted, not a text that holds none ({error})") from None
        if not isinstance(body, dict):
            raise ValueError(f"a JSON object is wanted, not {type_name(body)}")
        return table.kinds[name].model_validate(body)
    except ValidationError as error:
        reason = explain(error)
    except ValueError as error:
        reason = str(error)
    raise MessageError(f"{name}: {reason}. Send: {command(workflow_id, name, table.examples[name])}")


def type_name(value: Any) -> str:
    """The JSON type of a value, as people call it."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return "null" if value is None else names.get(type(value), "an object")


def explain(error: ValidationError) -> str:
    """The first faults of a validation, each with the field's name, never with the values."""
    words = {"missing": "is missing", "extra_forbidden": "is not a field"}
    lines = []
    for fault in error.errors(include_input=False, include_url=False, include_context=False)[:3]:
        field = ".".join(str(part)[:60] for part in fault["loc"])[:200] or "input"
        lines.append(f"field `{field}` {words.get(fault['type'], '- ' + fault['msg'])}")
    return "; ".join(lines)
