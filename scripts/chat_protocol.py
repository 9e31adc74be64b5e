"""OpenAI's chat protocol as the scripted model keeps it: what a request must be, and what an answer looks like.

Pure: no clock, no sockets. The rules are those of the Chat Completions reference, and a little stricter where services
differ, so that what passes here passes everywhere.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from scripts.model_script import Script, Turn

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CHARACTERS_PER_TOKEN = 4
SUMMED_UP = re.compile(r"\[session \d+, turns 1 to (\d+) are summed up here\]")
PIECE = 24  # characters of one streamed piece


class RefusedError(Exception):
    """A request that the service would not answer; `code` is OpenAI's short form of the reason."""

    def __init__(self, message: str, code: str = "protocol_error", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status

    def body(self) -> dict[str, Any]:
        """OpenAI's error shape."""
        kind = {"message": str(self), "type": "invalid_request_error", "param": None, "code": self.code}
        return {"error": kind}


def check_messages(messages: Any) -> list[Message]:
    """The messages of a request, if they keep the protocol; raises RefusedError with the place and the reason."""
    if not isinstance(messages, list) or not messages:
        raise RefusedError("messages: a list with at least one message is required")
    waiting: list[str] = []
    seen: set[str] = set()
    talked = False
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        role = _role(message, place)
        if role == "tool":
            _check_answer(message, place, waiting)
            continue
        if waiting:
            raise RefusedError(f"{place}: a {role} message, but tool call {waiting[0]!r} has no tool message yet")
        if role in ("user", "assistant"):
            if not talked and role != "user":
                raise RefusedError(
                    f"{place}: the first message after the system message must be a user message, not {role}"
                )
            talked = True
        if role == "assistant":
            waiting = _check_calls(message, place, seen)
        _check_content(message, place)
    if waiting:
        raise RefusedError(f"messages end, but tool call {waiting[0]!r} has no tool message")
    if not talked:
        raise RefusedError("messages: there is no user message")
    return messages


def _role(message: Any, place: str) -> str:
    if not isinstance(message, dict):
        raise RefusedError(f"{place}: a message must be an object")
    role = message.get("role")
    if role not in ROLES:
        raise RefusedError(f"{place}: unknown role {role!r}; the roles are {', '.join(ROLES)}")
    return str(role)


def _check_answer(message: Message, place: str, waiting: list[str]) -> None:
    call_id = message.get("tool_call_id")
    if not waiting:
        raise RefusedError(f"{place}: a tool message for {call_id!r}, but no tool call waits for one")
    if call_id != waiting[0]:
        raise RefusedError(f"{place}: a tool message for {call_id!r}, but the next call to answer is {waiting[0]!r}")
    if message.get("content") is None:
        raise RefusedError(f"{place}: a tool message must have content")
    _check_content(message, place)
    waiting.pop(0)


def _check_content(message: Message, place: str) -> None:
    content = message.get("content")
    if content is None:
        if message["role"] != "assistant" or not (message.get("tool_calls") or message.get("refusal")):
            raise RefusedError(f"{place}: a {message['role']} message must have content")
    elif isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise RefusedError(f"{place}: a part of the content must be an object with a type")
    elif not isinstance(content, str):
        raise RefusedError(f"{place}: content must be a string or a list of parts")


def _check_calls(message: Message, place: str, seen: set[str]) -> list[str]:
    """The ids of an assistant message's calls, in order; `seen` holds those of the messages before."""
    calls = message.get("tool_calls")
    if calls is None:
        return []
    if not isinstance(calls, list) or not calls:
        raise RefusedError(f"{place}.tool_calls: must be a list with at least one call, or be left out")
    ids = []
    for index, call in enumerate(calls):
        here = f"{place}.tool_calls[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type") != "function":
            raise RefusedError(f"{here}: a call must be an object of type 'function' with a function in it")
        if not isinstance(call.get("id"), str) or not call["id"]:
            raise RefusedError(f"{here}: a call must have an id")
        if call["id"] in seen:
            raise RefusedError(f"{here}: the call id {call['id']!r} occurs twice")
        _check_name(function.get("name"), here)
        _check_arguments(function.get("arguments"), here)
        seen.add(call["id"])
        ids.append(call["id"])
    return ids


def _check_name(name: Any, place: str) -> str:
    if not isinstance(name, str) or not WIRE_NAME.fullmatch(name):
        raise RefusedError(f"{place}: the tool name {name!r} does not match {WIRE_NAME.pattern}")
    return name


def _check_arguments(arguments: Any, place: str) -> None:
    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(arguments, parse_constant=constant) if isinstance(arguments, str) else None
    except ValueError as error:
        raise RefusedError(f"{place}: arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusedError(f"{place}: arguments must be a string that holds a JSON object")


def check_tools(tools: Any) -> set[str]:
    """The names of the tools that a request offers; raises RefusedError."""
    names: set[str] = set()
    if tools is None:
        return names
    if not isinstance(tools, list):
        raise RefusedError("tools: must be a list")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise RefusedError(f"tools[{index}]: a tool must be an object of type 'function' with a function in it")
        name = _check_name(function.get("name"), f"tools[{index}]")
        if name in names:
            raise RefusedError(f"tools[{index}]: the tool {name!r} is offered twice")
        names.add(name)
    return names


def turn_index(messages: list[Message]) -> int:
    """Which turn a request asks for: the number of answers in it, so a request asked again gets the same answer. What
    an earlier session's turns were summed up as counts for them."""
    marks = [SUMMED_UP.match(content_text(message)) for message in messages if message["role"] == "user"]
    before: int = max((int(mark[1]) for mark in marks if mark), default=0)
    return before + sum(1 for message in messages if message["role"] == "assistant")


def judgement(form: Any) -> tuple[str, Turn] | None:
    """The answer to a request for structured output, with its name: every text and list of the schema gets a word."""
    schema = form.get("json_schema") if isinstance(form, dict) else None
    if not isinstance(schema, dict) or schema.get("name") not in ("handoff", "summary"):
        return None
    fields = schema["schema"]["properties"]
    value = {
        name: [f"{name} of the session"] if field.get("type") == "array" else f"{name} of the session"
        for name, field in fields.items()
    }
    return str(schema["name"]), Turn(text=json.dumps(value))


def choose(name: str, script: Script, messages: list[Message], offered: set[str]) -> Turn:
    """The turn that answers these messages; raises RefusedError when the script and the request do not fit together."""
    index = turn_index(messages)
    if index >= len(script.turn):
        raise RefusedError(
            f"script {name!r} is spent: it has {len(script.turn)} turns and this request asks for turn[{index}]",
            code="script_spent",
        )
    turn = script.turn[index]
    for call in turn.calls:
        if call.wire_name not in offered and not call.unoffered:
            names = ", ".join(sorted(offered)) or "none"
            raise RefusedError(
                f"script {name!r} turn[{index}] calls {call.tool!r}, which this request does not offer ({names})",
                code="tool_not_offered",
            )
    last = next((message for message in reversed(messages) if message["role"] in ("tool", "user")), None)
    text = content_text(last) if last else ""
    if turn.expect is not None and turn.expect not in text:
        raise RefusedError(
            f"script {name!r} turn[{index}] expects {turn.expect!r} in the last tool or user message,"
            f" which is {text[:200]!r}",
            code="unexpected_content",
        )
    return turn


def content_text(message: Message) -> str:
    """The text of a message, whichever form its content has."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


def tokens(value: Any) -> int:
    """About how many tokens a text, or a value written as JSON, has."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def usage(turn: Turn, messages: list[Message], tools: Any) -> dict[str, Any]:
    """Token counts; what the request before this one held counts as cached, in the service's steps of 128."""
    said = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    offered = tokens(tools) if tools else 0
    before = offered + sum(map(tokens, messages[: said[-1]])) if said else 0
    prompt = offered + sum(map(tokens, messages))
    completion = tokens(turn.text + (turn.refusal or "")) + sum(
        tokens(call.wire_name) + tokens(call.wire_arguments) for call in turn.calls
    )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": before // 128 * 128 if before >= 1024 else 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def answer(turn: Turn, index: int) -> Message:
    """The assistant message of a turn."""
    empty = not turn.text and (turn.calls or turn.refusal is not None)
    message: Message = {"role": "assistant", "content": None if empty else turn.text, "refusal": turn.refusal}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{index}_{number}",
                "type": "function",
                "function": {"name": call.wire_name, "arguments": call.wire_arguments},
            }
            for number, call in enumerate(turn.calls)
        ]
    return message


def deltas(message: Message) -> Iterator[Message]:
    """The same message in the pieces of a stream."""
    yield {"role": "assistant", "content": "" if message["content"] is not None else None, "refusal": None}
    for field in ("content", "refusal"):
        for piece in _pieces(message[field] or ""):
            yield {field: piece}
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        start = {"id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield {"tool_calls": [{"index": index, **start}]}
        for piece in _pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]
