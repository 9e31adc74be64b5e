"""The Responses format: the body of a request, and the reply out of events (or the one whole response).

Nothing is kept at the server (`store` is false): the run's own record is the only one. So reasoning comes encrypted and
goes back as it came, before the call that it led to.
"""

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
    read_finish,
)
from activities.structured import native_schema, offered
from activities.wire_body import BODY, DONE
from workflows.records import Usage

USAGE_FIELDS = ("input_tokens", "output_tokens", "input_tokens_details")
_ENCRYPTED = "reasoning.encrypted_content"
_REASONING_FIELDS = ("type", "id", "summary", "encrypted_content", "content")


def request_body(route: Model, ask: Ask, quirks: set[str], mode: Mode | None) -> dict[str, Any]:
    """The body of a request; only what the bundle sets is sent."""
    body: dict[str, Any] = {
        "model": route.model,
        "instructions": ask.system,
        "input": items(route, ask, quirks),
        "store": False,
    }
    if "no_include" not in quirks and "reasoning_forbidden" not in quirks:
        body["include"] = [_ENCRYPTED]
    tools = offered(ask, mode)
    if tools:
        body["tools"] = [{"type": "function", **tool, "strict": False} for tool in tools]
    if ask.schema is not None and mode == "native":
        body["text"] = {"format": {"type": "json_schema", **native_schema(ask.schema, ask.schema_name)}}
    if route.max_output_tokens is not None:
        body["max_output_tokens"] = route.max_output_tokens
    if route.temperature is not None and "no_temperature" not in quirks:
        body["temperature"] = route.temperature
    if route.stream and "no_stream" not in quirks:
        body["stream"] = True
    return body


def features(body: dict[str, Any]) -> set[str]:
    """What a request held that a server may not take."""
    found = {name for name in ("temperature", "include") if name in body} | {"messages"}
    found |= ({"stream"} if body.get("stream") else set()) | ({"json_schema"} if "text" in body else set())
    return found | ({"reasoning"} if any(item.get("type") == "reasoning" for item in body["input"]) else set())


def items(route: Model, ask: Ask, quirks: set[str]) -> list[dict[str, Any]]:
    """The context as input items."""
    ids = wire_ids(ask.context, short="short_ids" in quirks)
    found: list[dict[str, Any]] = []
    for message in ask.context:
        if message["role"] == "tool":
            output = cut_middle(message["text"], ask.tool_output)
            found.append({"type": "function_call_output", "call_id": ids[message["call"]], "output": output})
        elif message["role"] == "user":
            found.append({"type": "message", "role": "user", "content": message["text"] + schema_note(message)})
        else:
            found += _own(message, ids, route, quirks)
    return found


def _own(message: dict[str, Any], ids: dict[str, str], route: Model, quirks: set[str]) -> list[dict[str, Any]]:
    kept = message.get("reasoning") or {}
    own = kept.get("api") == "responses" and kept.get("model") == route.model and "reasoning_forbidden" not in quirks
    calls = message.get("calls") or []
    before: dict[int, list[dict[str, Any]]] = {}
    for entry in kept.get("items", ()) if own else ():
        if entry["at"] < len(calls) or (entry["at"] == 0 and message["text"]):
            before.setdefault(entry["at"], []).append(entry["item"])
    found = before.pop(0, [])
    if message["text"]:
        found.append({"type": "message", "role": "assistant", "content": message["text"]})
    for at, call in enumerate(calls):
        found += before.get(at, [])
        call_item = {"type": "function_call", "call_id": ids[call["id"]], "name": call["tool"]}
        found.append({**call_item, "arguments": call["arguments"]})
    return found


class Collector:
    """Puts a reply together out of the objects of an answer. The last event holds the whole response again; the items
    that came before stand in where a server leaves them out there."""

    def __init__(self, route: Model, body: dict[str, Any], mode: Mode | None, on_delta: Delta) -> None:
        self._route, self._body, self._on_delta = route, body, on_delta
        self._reply = Reply(model=route.model, mode=mode)
        self._items: list[dict[str, Any]] = []
        self._response: dict[str, Any] | None = None
        self._usage: Any = None
        self._said = 0
        self._seen: set[str] = set()

    async def feed(self, part: dict[str, Any]) -> None:
        """One event, or the response itself. Raises ServerError for one that reports an error."""
        if part is DONE or part is BODY:
            return  # another format's end, and so not the end of a response
        kind = clean(part.get("type"))
        self._seen.add(kind or ", ".join(sorted(map(clean, part))[:20]))
        if kind == "error" or (part.get("error") and part.get("object") != "response"):
            raise ServerError(part.get("error") or part)
        if part.get("object") == "response":
            self._settle(part)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = part.get("response")
            self._settle(response if isinstance(response, dict) else {})
        elif kind == "response.output_item.done" and isinstance(part.get("item"), dict):
            self._items.append(part["item"])
            if part["item"].get("type") == "function_call":
                await self._on_delta("call", f"{clean(part['item'].get('name'))} ")
        elif kind in _DELTAS and isinstance(part.get("delta"), str):
            self._said += len(part["delta"])
            await self._on_delta(_DELTAS[kind], part["delta"])

    def _settle(self, response: dict[str, Any]) -> None:
        self._usage = response.get("usage") or self._usage
        if response.get("status") == "failed" or response.get("error"):
            raise ServerError(response.get("error") or response)
        if response.get("status", "completed") in ("completed", "incomplete"):
            self._response = response

    def cost(self) -> Usage | None:
        """What the answer has cost so far; None before anything of it came."""
        said = self._said or sum(len(clean(item)) for item in self._items)
        return cost_so_far(self._body, self._counted(), said, self._route.price)

    def _counted(self) -> Usage | None:
        return count_usage(self._usage, USAGE_FIELDS, self._route.price)

    def end(self) -> Reply:
        """The reply. Raises Passing unless it is whole."""
        reply, response = self._reply, self._response
        if response is None:
            known = any(kind.startswith("response.") for kind in self._seen)
            said = "the answer ended before the response was completed: it was cut off"
            if not known:
                said = f"the answer holds no response (its keys: {', '.join(sorted(self._seen)) or 'none'})"
            raise Passing(said, unusable=not known)
        if isinstance(response.get("model"), str) and response["model"]:
            reply.model = clean(response["model"])[:200]
        output = response.get("output")
        output = (
            [item for item in (output or self._items) if isinstance(item, dict)] if not isinstance(output, str) else []
        )
        details = response.get("incomplete_details")
        reply.finish_reason = "stop"
        if response.get("status") == "incomplete":
            reason = clean(details.get("reason")) if isinstance(details, dict) else ""
            reply.finish_reason = "content_filter" if read_finish(reason) == "content_filter" else "length"
        if not output and reply.finish_reason == "stop":
            keys = ", ".join(sorted(clean(key) for key, value in response.items() if value)[:20]) or "none"
            raise Passing(f"the answer holds no output (its keys: {keys})", unusable=True)
        self._read(output)
        return finish(reply, self._body, self._counted(), self._route)

    def _read(self, output: list[dict[str, Any]]) -> None:
        reply, text, refusal, reasoning = self._reply, list[str](), list[str](), list[dict[str, Any]]()
        for item in output:
            if item.get("type") == "function_call":
                call_id = item["call_id"] if isinstance(item.get("call_id"), str) else ""
                reply.calls.append(RawCall(clean(call_id), clean(item.get("name")), _string(item.get("arguments"))))
            elif item.get("type") == "reasoning":
                kept = {key: item[key] for key in _REASONING_FIELDS if item.get(key) is not None}
                reasoning.append({"at": len(reply.calls), "item": {"summary": [], **kept}})
            elif item.get("type") == "message":
                content = item.get("content")
                for part in content if isinstance(content, list) else [{"text": content}]:
                    if isinstance(part, dict):
                        text.append(_string(part.get("text")))
                        refusal.append(_string(part.get("refusal")))
        reply.text, reply.refusal = clean("".join(text)), clean("".join(refusal)) or None
        if any("encrypted_content" in entry["item"] for entry in reasoning):
            reply.reasoning = {"api": "responses", "model": self._route.model, "items": reasoning}


_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else clean(value)
