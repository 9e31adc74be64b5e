"""Making an overfull context smaller, once: the middle is replaced by a note of what it held.

Calls stay with their answers, the first message stays, and so does the end. The plan is recorded in the message of the
turn that it was made for, and applied again whenever the context is rendered: the entries themselves never change.
"""

import re
from typing import Any

from activities.canonical import preview
from activities.context import Messages

SHRINK_TO = 0.5
"""The share of the context that is kept where the server did not say how much it takes."""

ROOM = 0.7
"""The share of what the server takes that the smaller context may fill."""

SIZES = range(256, 20_000_001)
"""What may be the size of a context, in tokens or characters."""

_NUMBER = re.compile(r"(?<![\w-])\d[\d,]{2,}(?!\w|-(?!token))")
_NO_SIZE = re.compile(r"(code|status|http|error)\W{0,3}\d{3}\b|(?<![a-z])id\W{1,3}[\w-]+", re.IGNORECASE)
_LIMIT = re.compile(r"\b(max(imum)?|limit|at most|up to|must be|available)\b", re.IGNORECASE)

LEAST_OUTPUT = 500
NOTED = 40


def plan(context: Messages, tool_output: int, said: str) -> dict[str, Any] | None:
    """What to leave out: messages `start` up to before `end`, and the most characters of a tool result.

    `context` is as it stands in the store; `said` is the server's message, which may tell its limit. None: there is
    nothing that could be left out.
    """
    sent, shown = compacted(context)
    shown = min(tool_output, shown or tool_output)
    target = int(sum(_size(message, shown) for message in sent) * share(said))
    shorter = min(shown, max(LEAST_OUTPUT, target // 4))
    sizes = [_size(message, shorter) for message in context]
    start = end = 1
    total, last = sum(sizes), _last_turn(context)
    while total > target and end < last:
        step = _next_boundary(context, end)
        total -= sum(sizes[end:step])
        end = step
    if end == start and not any(_size(m, shown) > shorter for m in context if m["role"] == "tool"):
        return None
    note = _note(context[start:end]) if end > start else ""
    return {"start": start, "end": end, "text": note, "tool_output": shorter}


def compacted(context: Messages) -> tuple[Messages, int | None]:
    """The context as the last compaction in it says, and the most characters of a tool result from then on."""
    found = next((m["compaction"] for m in reversed(context) if m.get("compaction")), None)
    return (context, None) if found is None else (apply(context, found), int(found["tool_output"]))


def apply(context: Messages, found: dict[str, Any]) -> Messages:
    """The context with the middle replaced by its note."""
    start, end = found["start"], found["end"]
    note = [{"role": "user", "text": found["text"]}] if found["text"] else []
    return [*context[:start], *note, *context[end:]]


def share(said: str) -> float:
    """How much of the context to keep: by the server's own numbers where it gives them. What came is the largest, the
    limit is the first that is called so, else the smallest (`90000 tokens > 8192`)."""
    text, numbers, limits, at = _NO_SIZE.sub(" ", said), list[int](), list[int](), 0
    for found in _NUMBER.finditer(text):
        number = int(found[0].replace(",", ""))
        if number in SIZES:
            numbers.append(number)
            limits += [number] if _LIMIT.search(text, at, found.start()) else []
        at = found.end()
    if not numbers:
        return SHRINK_TO
    limit = next((number for number in limits if number < max(numbers)), min(numbers))
    return min(SHRINK_TO, ROOM * limit / max(numbers))


def _last_turn(context: Messages) -> int:
    """Where the last message of the model begins, which stays with what follows it; else the last message."""
    for index in range(len(context) - 1, 0, -1):
        if context[index]["role"] == "assistant":
            return index
    return len(context) - 1


def _next_boundary(context: Messages, index: int) -> int:
    """The end of the message at `index`, with the answers to its calls."""
    index += 1
    while index < len(context) and context[index]["role"] == "tool":
        index += 1
    return index


def _size(message: dict[str, Any], tool_output: int) -> int:
    text = len(message["text"])
    if message["role"] == "tool":
        return min(text, tool_output)
    return text + sum(len(call["arguments"]) + len(call["tool"]) for call in message.get("calls") or ())


def _note(messages: Messages) -> str:
    answers = {message["call"]: preview(message["text"], 120) for message in messages if message["role"] == "tool"}
    lines = []
    for message in messages:
        if message["role"] != "tool" and message["text"]:
            lines.append(f"- {message['role']}: {preview(message['text'], 160)}")
        lines += [
            f"- called {call['tool']} {preview(call['arguments'], 120)} -> {answers.get(call['id'], '')}"
            for call in message.get("calls") or ()
        ]
    left = f"\n- … and {len(lines) - NOTED} more before these" if len(lines) > NOTED else ""
    head = f"[{len(messages)} earlier messages were left out, since the context was too long. In short:"
    return head + left + "\n" + "\n".join(lines[-NOTED:]) + "]"
