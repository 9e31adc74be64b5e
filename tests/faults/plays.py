"""What a fault server may play: good answers in either wire format, and every way of not giving one."""

import json
from dataclasses import replace
from typing import Any

from tests.faults.server import Asked, End, Play, Raw

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
Fields = dict[str, Any]


def say(text: str | None, finish: str | None = "stop", usage: Fields | None = USAGE, **message: Any) -> Play:
    """An answer, streamed or not, as it was asked for; further fields of the message as they are."""
    return lambda asked: _chat(asked, {"role": "assistant", "content": text, **message}, finish, usage)


def ask(*calls: Fields | tuple[str, Any], finish: str = "tool_calls", text: str | None = None, **more: Any) -> Play:
    """An answer with tool calls: `(tool, arguments)`, arguments as a value or as raw text, or the raw call."""
    return lambda asked: say(text, finish, tool_calls=[_call(asked, n, c) for n, c in enumerate(calls)], **more)(asked)


def _call(asked: Asked, number: int, call: Fields | tuple[str, Any]) -> Fields:
    if isinstance(call, dict):
        return call
    tool, arguments = call
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    name = tool.replace(".", "__")
    return {
        "id": f"call_{asked.turn}_{number}",
        "type": "function",
        "function": {"name": name, "arguments": text},
    }


def _chat(asked: Asked, message: Fields, finish: str | None, usage: Fields | None) -> Raw:
    if not asked.streams:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return json_body({"id": "c", "model": asked.model, "choices": [choice], "usage": usage})(asked)
    return stream(*chunks(message, finish, usage))(asked)


def chunks(message: Fields, finish: str | None = "stop", usage: Fields | None = USAGE) -> list[Any]:
    """The message as chunks of a stream."""
    text = message.get("content") or ""
    rest = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
    deltas: list[Fields] = [{**rest, "content": ""}]
    deltas += [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call.get("function", {}).get("arguments") or ""
        head = {**call, "index": index, "function": {**call.get("function", {}), "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        pieces = [arguments[at : at + 8] for at in range(0, len(arguments), 8)] if isinstance(arguments, str) else []
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in pieces]
    found: list[Any] = [chunk(delta) for delta in deltas]
    if finish is not None:
        found.append(chunk({}, finish))
    if usage is not None:
        found.append({"id": "c", "model": "m", "choices": [], "usage": usage})
    return [*found, "[DONE]"]


def chunk(delta: Fields, finish: str | None = None) -> Fields:
    """One chunk of a stream."""
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def stream(*events: Any, end: End = "whole", gap: float = 0.0) -> Play:
    """A stream of exactly these events (objects, or text as it is), whatever was asked for."""
    pieces = tuple(
        b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n" for event in events
    )
    return lambda _: Raw(pieces=pieces, end=end, gap=gap)


def json_body(body: Any, status: int = 200, **headers: str) -> Play:
    """A body of exactly this JSON."""
    return raw_body(json.dumps(body).encode(), status, **{"content_type": "application/json", **headers})


def raw_body(body: bytes, status: int = 200, **headers: str) -> Play:
    """A body of exactly these bytes. Header names with `_` for `-`."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return lambda _: Raw(status, named, (body,), length=True)


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Play:
    """OpenAI's error shape."""
    return json_body({"error": {"message": message, "type": "error", "param": None, "code": code}}, status, **headers)


def ended(play: Play, end: End, after: int | None = None) -> Play:
    """The same, but after so many pieces it ends like that."""

    def cut(asked: Asked) -> Raw:
        raw = play(asked)
        return replace(raw, pieces=raw.pieces[:after], end=end)

    return cut


def late(play: Play, delay: float) -> Play:
    """The same, after some seconds."""
    return lambda asked: replace(play(asked), delay=delay)


RESET: Play = lambda _: Raw(end="reset")  # noqa: E731
STALL: Play = lambda _: Raw(end="stall")  # noqa: E731


def respond(*items: Fields, status: str = "completed", usage: Fields | None = None, **more: Any) -> Play:
    """A response (Responses API) of these output items, as events or whole, as it was asked for."""
    counted = usage or {"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 40}}
    body = {"id": "r", "object": "response", "model": "m", "status": status, "output": list(items), "usage": counted}
    body |= more

    def play(asked: Asked) -> Raw:
        if not asked.streams:
            return json_body(body)(asked)
        return stream(*response_events(body))(asked)

    return play


def response_events(body: Fields) -> list[Fields]:
    """The events of a response."""
    found: list[Fields] = [{"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}]
    for item in body["output"]:
        for part in item.get("content") or ():
            text = part.get("text", "")
            pieces = [text[at : at + 8] for at in range(0, len(text), 8)]
            found += [{"type": "response.output_text.delta", "delta": piece} for piece in pieces]
        found.append({"type": "response.output_item.done", "item": item})
    return [*found, {"type": f"response.{body['status']}", "response": body}]


def text_item(text: str) -> Fields:
    """An output message."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def call_item(tool: str, arguments: str = "{}", call_id: str = "call_1") -> Fields:
    """An output call."""
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": tool, "arguments": arguments}


def reasoning_item(number: int = 1) -> Fields:
    """Encrypted reasoning."""
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"secret-thought-{number}"}
