"""The final answer as JSON: how it is asked for, and how it is read."""

from typing import Any

import pytest

from activities.reading import take_final
from activities.structured import FINAL_TOOL, read_structured
from scripts.chat_protocol import RefusedError
from tests.faults.plays import ask, say
from tests.faults.server import FaultServer
from tests.unit.gateway_kit import Desk

FIELDS = {"n": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": FIELDS, "required": ["n"], "additionalProperties": False}


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 1}',
        ' \n{"n": 1}\n',
        '```json\n{"n": 1}\n```',
        'Here you are:\n```\n{"n": 1}\n```\nGlad to help {really}.',
        'The answer is {"n": 1}, I think.',
    ],
)
async def test_the_answer_is_found_in_fences_and_prose(text: str) -> None:
    assert await read_structured(text, SCHEMA) == ({"n": 1}, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [("none", "is not JSON"), ('{"n": "x"}', 'n: it is not of type "integer"'), ("{}", '"n" is a required property')],
)
async def test_what_is_wrong_is_said(text: str, said: str) -> None:
    value, nudge = await read_structured(text, SCHEMA)
    assert value is None
    assert said in str(nudge)


async def test_a_text_alone_may_be_the_answer() -> None:
    assert await read_structured('"yes"', {"type": "string"}) == ("yes", None)
    assert await read_structured("[1, 2]", {"type": "array"}) == ([1, 2], None)


async def test_a_server_without_schemas_is_asked_by_prompt_and_remembered() -> None:
    def no_schemas(body: dict[str, Any]) -> None:
        if "response_format" in body:
            raise RefusedError("This response_format type is unavailable now")

    with FaultServer([say('{"n": 1}')], no_schemas) as server:
        asking = Desk(server)
        first = await asking.ask(schema=SCHEMA, tools=False)
        second = await asking.ask(schema=SCHEMA, tools=False)
    assert (first.mode, second.mode, server.requests()) == ("prompt", "prompt", 3)
    assert server.asked[0].body["response_format"]["json_schema"]["strict"] is True


async def test_a_tool_takes_the_answer_and_plain_text_is_taken_too() -> None:
    with FaultServer([ask((FINAL_TOOL, {"value": 7})), say("7"), ask((FINAL_TOOL, {}), ("x", {}))]) as server:
        asking = Desk(server, {"structured": "tool"})
        replies = [await asking.ask(schema={"type": "integer"}) for _ in range(3)]
    for reply in replies:
        take_final(reply, {"type": "integer"})
    assert [reply.text for reply in replies] == ["7", "7", ""]
    assert [len(reply.calls) for reply in replies] == [0, 0, 2]
    offered = [tool["function"]["name"] for tool in server.asked[0].body["tools"]]
    assert offered == ["crm__find", FINAL_TOOL]
