"""Nothing that a model or a server says makes a worker ask without end, or think about it for long."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from activities.errors import ModelRequestRejected
from activities.leaks import is_leaked
from activities.manifest import Model
from activities.profiles import quirks_of
from activities.structured import MOST_FENCES, read_structured
from activities.wire_body import read_objects
from activities.wire_chat import Collector
from scripts.chat_protocol import RefusedError
from tests.faults.plays import ask, say
from tests.faults.server import FaultServer
from tests.unit.gateway_kit import Desk, Sink, turn
from workflows.strict_json import loads

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
Body = dict[str, Any]


def thinking(body: Body) -> None:
    """A server that wants thinking blocks, which neither with nor without reasoning are in a request."""
    if any(message["role"] == "assistant" for message in body["messages"]):
        raise RefusedError("Expected `thinking` or `redacted_thinking`, but found `text`")


def too_much(body: Body) -> None:
    """A server that knows one name for the limit, and refuses its size."""
    if "max_completion_tokens" in body:
        raise RefusedError("max_completion_tokens is too large: 200000. This model supports at most 128000")
    raise RefusedError("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")


def neither(body: Body) -> None:
    """A server that refuses one form of the limit by the name of the other, and does not say why."""
    if "max_completion_tokens" in body:
        raise RefusedError("bad max_completion_tokens")
    raise RefusedError("'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")


@pytest.mark.parametrize(
    ("rule", "route", "said", "requests"),
    [
        (thinking, {}, "Expected `thinking`", 2),
        (too_much, {"model": "gpt-5-mini", "max_output_tokens": 200_000}, "too large: 200000", 1),
        (neither, {"model": "gpt-5-mini", "max_output_tokens": 200_000}, "bad max_completion_tokens", 2),
    ],
)
async def test_a_server_that_contradicts_itself_is_asked_once_for_each_form_and_then_not_again(
    rule: Callable[[Body], None], route: Body, said: str, requests: int
) -> None:
    with FaultServer([ask(("crm.find", {})), say("done")], rule) as server:
        desk = Desk(server, route)
        more = turn(await desk.ask()) if rule is thinking else []
        before = server.requests()
        for most in (requests, 1):  # what was learned stays learned
            with pytest.raises(ModelRequestRejected, match=said):
                await asyncio.wait_for(desk.ask(*more), 30)
            assert server.requests() - before == most
            before = server.requests()


def test_where_a_server_was_found_to_want_both_of_two_opposites_its_profile_stands() -> None:
    both = {"max_tokens", "max_completion_tokens", "reasoning_back", "reasoning_forbidden", "no_stream"}
    assert quirks_of(Model(model="gpt-5-mini"), both) == {"max_completion_tokens", "no_stream"}
    assert quirks_of(Model(model="m", profile="reasoning_back"), both) == {"max_tokens", "reasoning_back", "no_stream"}


async def objects(pieces: list[bytes]) -> list[Body]:
    """What is read of a body in these pieces."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [found async for found in read_objects(body())]


async def collect(calls: list[Body]) -> None:
    """Puts a reply together out of pieces of calls."""
    collector = Collector(Model(model="m"), {"messages": []}, None, Sink())
    for call in calls:
        await collector.feed({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})


def twice(keys: int) -> None:
    """Reads an object whose last key is its last but one."""
    text = ", ".join(f'"k{min(n, keys - 2)}": 1' for n in range(keys))
    with pytest.raises(ValueError, match="given twice"):
        loads(f"{{{text}}}")


NAMES = [f"tool_number_{number}" for number in range(30)]
LONG: dict[str, Callable[[int], Any]] = {
    "blank lines in a fence": lambda n: read_structured("Here:\n```json\n" + "\n" * n + '{"a"', SCHEMA),
    "marks of calls": lambda n: is_leaked("<|tool_call|>" * n, NAMES),
    "marks with parts of names": lambda n: is_leaked("<|tool_call|>tool_number_" * n, NAMES),
    "keys": twice,
    "a line in many pieces": lambda n: objects([b'data: {"a": "', *[b"x" * 100] * n, b'"}\n\n']),
    "blanks before a body": lambda n: objects([*[b" " * 100] * n, b"{}"]),
    "arguments in many pieces": lambda n: collect([{"index": 0, "function": {"arguments": "x" * 30}}] * n),
}


@pytest.mark.parametrize("kind", LONG)
async def test_a_long_text_takes_no_more_than_its_length(kind: str) -> None:
    """A hundred thousand of a kind in some seconds: what grows with the square of it would take minutes."""
    began = time.process_time()
    try:
        found = LONG[kind](100_000)
        if asyncio.iscoroutine(found):
            await found
    except Exception as error:
        if "JSON" not in str(error):
            raise
    assert time.process_time() - began < 8


async def test_the_answer_is_found_in_the_last_of_many_fences() -> None:
    code = "```py\nprint()\n```\n" * (MOST_FENCES * 3)
    assert await read_structured(code + '```json\n{"a": 1}\n```', SCHEMA) == ({"a": 1}, None)
    assert await read_structured('```json\n{"a": 1}\n```\n' + code, SCHEMA) == ({"a": 1}, None)


def test_a_call_of_a_tool_is_known_after_many_marks() -> None:
    assert is_leaked("<tool_call>" * 500 + json.dumps({"name": NAMES[7]}), NAMES)
    assert not is_leaked("<tool_call>" * 500, [])
