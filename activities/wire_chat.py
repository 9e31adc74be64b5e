"""The Chat Completions format: the body of a request, and the reply out of chunks (or the one whole answer)."""

import json
from dataclasses import dataclass, field
from typing import Any

from activities.manifest import Model
from activities.render import cut_middle, schema_note, wire_ids
from activities.reply import (
    Ask,
    Delta,
    Mode,
    Passing,
    RawCall,
    Reply,
    ServerError,
    clean,
    cost_so_far,
    count_usage,
    finish,
    paired,
    read_finish,
)
from activities.structured import final_tool, native_schema, offered
from activities.wire_body import BODY, DONE
from workflows.records import Usage

USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "prompt_tokens_details")
_SHARED = ("content", "refusal")


def request_body(route: Model, ask: Ask, quirks: set[str], mode: Mode | None) -> dict[str, Any]:
    """The body of a request; only what the bundle sets is sent."""
    body: dict[str, Any] = {"model": route.model, "messages": messages(route, ask, quirks)}
    tools = offered(ask, mode)
    if tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in tools]
    if ask.schema is not None and mode == "native":
        body["response_format"] = {"type": "json_schema", "json_schema": native_schema(ask.schema, ask.schema_name)}
    if route.max_output_tokens is not None:
        name = "max_completion_tokens" if "max_completion_tokens" in quirks else "max_tokens"
        body[name] = route.max_output_tokens
    if route.temperature is not None and "no_temperature" not in quirks:
        body["temperature"] = route.temperature
    if route.stream and "no_stream" not in quirks:
        body["stream"] = True
        if "no_stream_options" not in quirks:
            body["stream_options"] = {"include_usage": True}
    return body


def features(body: dict[str, Any]) -> set[str]:
    """What a request held that a server may not take."""
    found: set[str] = {
        name for name in ("max_tokens", "max_completion_tokens", "temperature", "stream_options") if name in body
    }
    found |= {"messages"} | ({"stream"} if body.get("stream") else set())
    found |= {"json_schema"} if "response_format" in body else set()
    found |= {"null_text"} if any(message["content"] is None for message in body["messages"]) else set()
    return found | ({"reasoning"} if any("reasoning_content" in message for message in body["messages"]) else set())


def messages(route: Model, ask: Ask, quirks: set[str]) -> list[dict[str, Any]]:
    """The system prompt, then the context, long tool results cut in the middle."""
    ids = wire_ids(ask.context, short="short_ids" in quirks)
    found = [{"role": "system", "content": ask.system}]
    for message in ask.context:
        made = _message(message, ids, ask.tool_output)
        if made["role"] == "assistant":
            _adapt(made, message, route, quirks)
        if "merge_users" in quirks and made["role"] == "user" and found[-1]["role"] == "user":
            made["content"] = f"{found.pop()['content']}\n\n{made['content']}"
        found.append(made)
    return found


def _message(message: dict[str, Any], ids: dict[str, str], most: int) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": ids[message["call"]], "content": cut_middle(message["text"], most)}
    if message["role"] == "user":
        return {"role": "user", "content": message["text"] + schema_note(message)}
    if not message.get("calls"):
        return {"role": "assistant", "content": message["text"]}
    calls = [
        {"id": ids[call["id"]], "type": "function", "function": {"name": call["tool"], "arguments": call["arguments"]}}
        for call in message["calls"]
    ]
    return {"role": "assistant", "content": message["text"] or None, "tool_calls": calls}


def _adapt(made: dict[str, Any], message: dict[str, Any], route: Model, quirks: set[str]) -> None:
    if made["content"] is None and "text_not_null" in quirks:
        made["content"] = ""
    kept = message.get("reasoning") or {}
    own = kept.get("api") == "chat" and kept.get("model") == route.model
    if "reasoning_back" in quirks:  # the key must be there, also where the model gave no reasoning that turn
        made["reasoning_content"] = kept.get("text", "") if own else ""
    for index, call in enumerate(made.get("tool_calls", ())):
        if own and (extra := kept.get("extra", {}).get(str(index))):
            call["extra_content"] = extra


@dataclass
class _Held:
    """A call of which pieces come. `extra`: what its server wants to see again with it; `again`: it began with nothing
    but the name of the call before it."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Any] | None = None
    again: bool = False

    @property
    def arguments(self) -> str:
        """What of them has come."""
        return paired("".join(self.pieces))


class Collector:
    """Puts a reply together out of the objects of an answer."""

    def __init__(self, route: Model, body: dict[str, Any], mode: Mode | None, on_delta: Delta) -> None:
        self._route, self._body, self._on_delta = route, body, on_delta
        self._reply = Reply(model=route.model, mode=mode)
        self._said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning": []}
        self._calls: list[_Held] = []
        self._open: dict[int, int] = {}
        self._usage: Any = None
        self._keys: set[str] = set()
        self._message = self._body_read = self._done = False

    async def feed(self, part: dict[str, Any]) -> None:
        """One object. Raises ServerError for one that reports an error."""
        self._done, self._body_read = self._done or part is DONE, self._body_read or part is BODY
        self._keys.update(key for key, value in part.items() if value)
        self._usage = part.get("usage") or self._usage
        if part.get("error"):
            raise ServerError(part["error"])
        if isinstance(part.get("model"), str) and part["model"]:
            self._reply.model = clean(part["model"])[:200]
        choices = part.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
                await self._choice(choice)

    async def _choice(self, choice: dict[str, Any]) -> None:
        self._reply.finish_reason = read_finish(choice.get("finish_reason")) or self._reply.finish_reason
        said = choice.get("delta")
        if not isinstance(said, dict):
            said = choice.get("message")
            self._message = isinstance(said, dict)
        if not isinstance(said, dict):
            return
        reasoning = said.get("reasoning_content") or said.get("reasoning")
        refusal = _text(said.get("refusal")) or _text(said.get("content"), "refusal")
        texts = {"content": _text(said.get("content")), "refusal": refusal}
        for kind, text in {**texts, "reasoning": reasoning if isinstance(reasoning, str) else ""}.items():
            if text:
                self._said[kind].append(text)
                await self._on_delta("text" if kind == "content" else kind, text)
        calls = said.get("tool_calls")
        if not calls and isinstance(said.get("function_call"), dict):  # the form before there were tools
            calls = [{"index": 0, "function": said["function_call"]}]
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                await self._call(position, call)

    async def _call(self, position: int, call: dict[str, Any]) -> None:
        index = _number(call.get("index"), position)
        given = call.get("function")
        function: dict[str, Any] = given if isinstance(given, dict) else {}
        call_id = call["id"] if isinstance(call.get("id"), str) else ""
        held = self._calls[self._open[index]] if index in self._open else None
        if held is None or _starts_another(held, call_id, function):
            self._open[index] = len(self._calls)
            again = held is not None and not call_id and held.name == clean(function.get("name"))
            held = _Held(again=again)
            self._calls.append(held)
        held.id, held.extra = call_id or held.id, _extra(call) or held.extra
        held.name = clean(function.get("name")) or held.name
        piece = function.get("arguments")
        held.pieces.append(piece if isinstance(piece, str) else clean(piece))
        await self._on_delta("call", f"{held.name} " if function.get("name") else clean(piece))

    def cost(self) -> Usage | None:
        """What the answer has cost so far; None before anything of it came."""
        said = sum(len(text) for texts in self._said.values() for text in texts)
        said += sum(len(call.name) + sum(map(len, call.pieces)) for call in self._calls)
        return cost_so_far(self._body, self._counted(), said, self._route.price)

    def _counted(self) -> Usage | None:
        return count_usage(self._usage, USAGE_FIELDS, self._route.price)

    def end(self) -> Reply:
        """The reply. Raises Passing unless it is whole."""
        reply = self._reply
        reply.text, reply.refusal = clean("".join(self._said["content"])), clean("".join(self._said["refusal"])) or None
        held = [call for call in self._calls if not call.again or call.arguments]
        reply.calls = [RawCall(clean(call.id), call.name, call.arguments) for call in held]
        if not (reply.finish_reason or self._message or reply.text or reply.calls or reply.refusal):
            keys = ", ".join(sorted(clean(key)[:40] for key in self._keys)[:20]) or "none"
            raise Passing(f"the answer holds no choice (its keys: {keys})", unusable=True)
        whole = (self._message and self._body_read) or (self._done and all(map(_is_whole, reply.calls)))
        if reply.finish_reason is None and not whole:
            raise Passing("the answer ended without a finish reason: it was cut off")
        if reply.finish_reason == "error":
            raise Passing("the server ended the answer with an error")
        reasoning = clean("".join(self._said["reasoning"]))
        extra = {str(index): call.extra for index, call in enumerate(held) if call.extra}
        if reasoning or extra:
            kept = {"api": "chat", "model": self._route.model, "text": reasoning}
            reply.reasoning = {**kept, "extra": extra} if extra else kept
        return finish(reply, self._body, self._counted(), self._route)


def _is_whole(call: "RawCall | _Held") -> bool:
    """Whether nothing can be missing of a call: a JSON object shows its own end, no other value does."""
    try:
        return bool(call.name) and isinstance(json.loads(call.arguments), dict)
    except (ValueError, RecursionError):
        return False


def _starts_another(held: _Held, call_id: str, function: dict[str, Any]) -> bool:
    """Some servers number every call of a turn 0: another id, or a name after whole arguments, begins the next one."""
    if call_id and held.id and call_id != held.id:
        return True
    if not function.get("name") or call_id:
        return False
    return held.arguments.strip() == "null" or _is_whole(held)


def _number(index: Any, position: int) -> int:
    """The number of a call: some servers write it as text, some leave it out."""
    if isinstance(index, str) and index.isdecimal() and len(index) < 5:
        return int(index)
    return index if isinstance(index, int) else position


def _extra(call: dict[str, Any]) -> dict[str, Any] | None:
    """What a server adds to a call and wants back with it, as the signature of the thought that led to it."""
    extra = call.get("extra_content")
    return extra if isinstance(extra, dict) else None


def _text(content: Any, kind: str = "text") -> str:
    """A message's content: text, or parts that hold text, or a refusal."""
    if isinstance(content, list):
        return "".join(_text(part.get(kind)) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) and kind == "text" else ""


__all__ = ["Collector", "features", "final_tool", "messages", "request_body"]
