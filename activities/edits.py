"""Edits applied to a context: pure functions. What would leave a call without its answer, or an answer without its
call, is refused.

Numbers are those of the messages before any edit, so that one edit does not move what the next one means.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from activities.context import Messages, check, tool_message, user_message
from activities.errors import CheckpointDamaged
from workflows.edits import Append, Drop, Edit, Edits, Goal, Replace, ToolResult

INPUTS = "\n\nInputs:\n"
"""What stands between the goal and the inputs in the first message."""


ENDS = 'the context would end with the agent\'s own message: add {"append": "user", "content": …}'

_EDITS = TypeAdapter[list[Edit]](Edits)


def edits_of(values: Sequence[dict[str, Any]]) -> list[Edit]:
    """Edits out of JSON that was read before."""
    return _EDITS.validate_python(list(values))


class EditError(Exception):
    """Edits that cannot be applied. The text names the edit, the reason and what would do instead."""


@dataclass(frozen=True)
class Spliced:
    """A context after its edits. Where calls are still open (`open`), `messages` end with the one that makes them, then
    `answers` are those given so far, and `said` what comes at the end. `split`: whether the message that makes the open
    calls is still there, so that `answers` are apart even if none is open now. `left`: the calls that are gone, or
    whose answer is another one. `kept`: whether the last message of the agent is still the one that it was."""

    messages: Messages
    answers: Messages = field(default_factory=list)
    said: Messages = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    kept: bool = True
    open: bool = False
    split: bool = False

    @property
    def whole(self) -> Messages:
        """All of it."""
        return [*self.messages, *self.answers, *self.said]


def splice(messages: Messages, edits: Sequence[Edit], open_calls: Sequence[str] = (), by: str | None = None) -> Spliced:
    """Applies edits to a context whose last calls may still be open. What they let a user say is said by `by`. Raises
    EditError."""
    after: list[dict[str, Any] | None] = list(messages)
    settled: dict[str, dict[str, Any]] = {}
    said: Messages = []
    for number, edit in enumerate(edits):
        try:
            match edit:
                case Append():
                    said.append(user_message(edit.content, by))
                case Goal():
                    after[0] = {**_there(after, 0), "text": _with_inputs(edit.goal, str(messages[0]["text"]))}
                case Replace():
                    after[edit.replace] = _replaced(_there(after, edit.replace), edit.content)
                case Drop():
                    _drop(after, edit.drop)
                case ToolResult():
                    _answer(after, settled, edit, open_calls)
        except EditError as error:
            raise EditError(f"edits.{number}: {error}") from None
    for index, message in enumerate(after):
        if message is not None and message is not messages[index] and message["role"] == "user" and by is not None:
            after[index] = {**message, "by": by}
    return _whole(messages, after, settled, said, open_calls)


def _whole(
    before: Messages,
    after: Sequence[dict[str, Any] | None],
    settled: Mapping[str, dict[str, Any]],
    said: Messages,
    open_calls: Sequence[str],
) -> Spliced:
    kept = [message for message in after if message is not None]
    left = sorted(forgotten(before, kept))
    last = next((index for index in range(len(before) - 1, -1, -1) if before[index]["role"] == "assistant"), None)
    same = last is None or after[last] is before[last]
    if open_calls and open_calls[0] in calls_in(kept):
        end = next(index for index, message in enumerate(kept) if open_calls[0] in calls_in([message]))
        given = {message["call"]: message for message in kept[end + 1 :]} | dict(settled)
        ids = [call["id"] for call in kept[end]["calls"]]
        answers = [given[each] for each in ids if each in given]
        _checked([*kept[: end + 1], *(tool_message(each, "", "") for each in ids)])
        return Spliced(kept[: end + 1], answers, said, left, same, open=len(answers) < len(ids), split=True)
    _checked([*kept, *said])
    return Spliced(kept, said=said, left=left, kept=same)


def _there(after: Sequence[dict[str, Any] | None], number: int) -> dict[str, Any]:
    if number >= len(after):
        raise EditError(f"there is no message {number}: the context has messages 0 to {len(after) - 1}")
    found = after[number]
    if found is None:
        raise EditError(f"message {number} was dropped by an earlier edit")
    return found


def _replaced(message: dict[str, Any], content: Any) -> dict[str, Any]:
    text = _text(content)
    if not text.strip() and not message.get("calls") and message["role"] != "tool":
        raise EditError("its `content` is blank: drop the message instead")
    own = {key: value for key, value in message.items() if key not in ("reasoning", "compaction", "result")}
    return {**own, "text": text}


def _drop(after: list[dict[str, Any] | None], number: int) -> None:
    message = _there(after, number)
    if number == 0:
        raise EditError('message 0 is the goal: give another one with {"goal": …}')
    if message["role"] == "tool":
        call = message["call"]
        owner = next(index for index, each in enumerate(after) if each and call in calls_in([each]))
        raise EditError(
            f"dropping message {number} would orphan call {call}: drop message {owner}, which makes the call, or give "
            f'another answer with {{"tool_result": "{call}", "content": …}}'
        )
    gone = calls_in([message])
    after[number] = None
    for index, each in enumerate(after):
        if each is not None and each["role"] == "tool" and each["call"] in gone:
            after[index] = None


def _answer(
    after: list[dict[str, Any] | None],
    settled: dict[str, dict[str, Any]],
    edit: ToolResult,
    open_calls: Sequence[str],
) -> None:
    call, text = edit.tool_result, _text(edit.content)
    for index, each in enumerate(after):
        if each is not None and each["role"] == "tool" and each["call"] == call:
            after[index] = _replaced(each, text)
            return
    made = {each["id"]: each["tool"] for message in after if message for each in message.get("calls") or ()}
    if call not in open_calls or call not in made:
        raise EditError(f"there is no call {call!r} in the context; there are: {', '.join(list(made)[-20:]) or 'none'}")
    settled[call] = tool_message(call, made[call], text)


def calls_in(messages: Sequence[dict[str, Any]]) -> set[str]:
    """The ids of the calls that messages make."""
    return {call["id"] for message in messages for call in message.get("calls") or ()}


def forgotten(before: Messages, after: Messages) -> set[str]:
    """The calls of a context of which the one that follows it does not know any more how they ended: it does not hold
    them, or gives them another answer."""
    answers = {each["call"]: each for each in after if each["role"] == "tool"}
    told = [each for each in before if each["role"] == "tool"]
    return (calls_in(before) - calls_in(after)) | {
        each["call"] for each in told if answers.get(each["call"], each) != each
    }


def _checked(messages: Messages) -> None:
    try:
        check(messages)
    except CheckpointDamaged as error:
        raise EditError(f"edits: the context would not be whole: {error.message}") from None


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _with_inputs(goal: str, before: str) -> str:
    _, mark, inputs = before.partition(INPUTS)
    return f"{goal}{mark}{inputs}"
