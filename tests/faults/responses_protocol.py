"""What the Responses API takes as input, as strictly as its reference says."""

from typing import Any

from scripts.chat_protocol import WIRE_NAME, RefusedError

ITEMS = ("message", "function_call", "function_call_output", "reasoning")


def check_input(body: dict[str, Any]) -> None:
    """Raises RefusedError with the place and the reason."""
    items = body.get("input")
    if not isinstance(items, list) or not items:
        raise RefusedError("input: a list with at least one item is required")
    waiting: list[str] = []
    seen: set[str] = set()
    reasoning = False
    for index, item in enumerate(items):
        place = f"input[{index}]"
        kind = item.get("type", "message")
        if kind not in ITEMS:
            raise RefusedError(f"{place}: unknown type {kind!r}")
        if kind == "function_call_output":
            if item.get("call_id") not in waiting:
                raise RefusedError(f"{place}: an output for {item.get('call_id')!r}, but no call waits for it")
            if not isinstance(item.get("output"), str):
                raise RefusedError(f"{place}: the output must be a string")
            waiting.remove(item["call_id"])
        elif kind == "function_call":
            _check_call(item, place, seen)
            waiting.append(item["call_id"])
        elif waiting and kind == "message":
            raise RefusedError(f"{place}: a message, but call {waiting[0]!r} has no output yet")
        if reasoning and kind not in ("reasoning", "function_call", "message"):
            raise RefusedError(f"{place}: a reasoning item without the item that followed it")
        reasoning = kind == "reasoning"
    if waiting:
        raise RefusedError(f"input ends, but call {waiting[0]!r} has no output")
    if reasoning:
        raise RefusedError("input ends with a reasoning item")
    _check_tools(body.get("tools") or [])


def _check_call(item: dict[str, Any], place: str, seen: set[str]) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= 64 or call_id in seen:
        raise RefusedError(f"{place}: the call id {call_id!r} is missing, too long or used twice")
    if not WIRE_NAME.fullmatch(str(item.get("name"))) or not isinstance(item.get("arguments"), str):
        raise RefusedError(f"{place}: a call needs a name and arguments as a string")
    seen.add(call_id)


def _check_tools(tools: list[dict[str, Any]]) -> None:
    for index, tool in enumerate(tools):
        if tool.get("type") != "function" or not WIRE_NAME.fullmatch(str(tool.get("name"))):
            raise RefusedError(f"tools[{index}]: a function with a name is required")


def input_turns(body: dict[str, Any]) -> int:
    """How many answers of the model the input holds: runs of its items with something else between."""
    turns, inside = 0, False
    for item in body.get("input") or []:
        kind = item.get("type", "message")
        own = kind in ("function_call", "reasoning") or (kind == "message" and item.get("role") == "assistant")
        turns += own and not inside
        inside = own
    return turns
