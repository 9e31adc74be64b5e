"""Calls, texts and counts as some servers write them."""

from typing import Any

import pytest

from activities.errors import ModelRequestRejected
from activities.reply import MOST_TOKENS
from scripts.chat_protocol import RefusedError
from tests.faults.plays import chunk, raw_body, reasoning_item, respond, say, stream, text_item
from tests.faults.server import FaultServer, Play
from tests.unit.gateway_kit import Desk, turn

SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
FACE = "\N{GRINNING FACE}"
HIGH, LOW = "\ud83d", "\ude00"


def piece(index: Any = 0, name: str | None = None, arguments: str = "", **more: Any) -> dict[str, Any]:
    """A chunk with a piece of a call."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return chunk({"tool_calls": [{"index": index, "function": function, **more}]})


def calls(*pieces: dict[str, Any]) -> Play:
    """A stream of pieces of calls."""
    return stream(*pieces, chunk({}, "tool_calls"), "[DONE]")


PIECES = {
    "an index as text": (
        [piece("0", "f", id="a"), piece("1", "g", id="b"), piece("0", None, '{"a": 1}'), piece("1", None, '{"b": 2}')],
        [("f", '{"a": 1}'), ("g", '{"b": 2}')],
    ),
    "a name that is said again": (
        [piece(0, "f", '{"a": 1}'), piece(0, "f", "")],
        [("f", '{"a": 1}')],
    ),
    "another call by the same name": (
        [piece(0, "f", '{"a": 1}'), piece(0, "f", ""), piece(0, None, '{"a": 2}')],
        [("f", '{"a": 1}'), ("f", '{"a": 2}')],
    ),
    "another call without arguments": (
        [piece(0, "f", '{"a": 1}'), piece(0, "g", "")],
        [("f", '{"a": 1}'), ("g", "")],
    ),
    "a character in two pieces": (
        [piece(0, "f", f'{{"a": "{HIGH}', id="a"), piece(0, None, f'{LOW}"}}')],
        [("f", f'{{"a": "{FACE}"}}')],
    ),
    "half a character": ([piece(0, "f", f'{{"a": "{HIGH}"}}')], [("f", f'{{"a": "{HIGH}"}}')]),
}


@pytest.mark.parametrize("kind", PIECES)
async def test_the_pieces_of_calls_are_put_together(kind: str) -> None:
    pieces, meant = PIECES[kind]
    with FaultServer([calls(*pieces)]) as server:
        reply = await Desk(server).ask()
    assert [(call.name, call.arguments) for call in reply.calls] == meant


async def test_a_character_that_comes_in_two_pieces_is_one_and_half_of_one_is_none() -> None:
    text = stream(chunk({"content": f"hi {HIGH}"}), chunk({"content": f"{LOW}{LOW}!"}, "stop"), "[DONE]")
    with FaultServer([text]) as server:
        assert (await Desk(server).ask()).text == f"hi {FACE}?!"


async def test_half_a_character_in_reasoning_is_none_either() -> None:
    item = {**reasoning_item(), "summary": [{"type": "summary_text", "text": f"hm {HIGH}"}]}
    with FaultServer([respond(item, text_item("done"))]) as server:
        kept = (await Desk(server, {"api": "responses"}).ask()).reasoning
    assert kept is not None
    assert kept["items"][0]["item"]["summary"][0]["text"] == "hm ?"


@pytest.mark.parametrize("streams", [True, False])
async def test_a_refusal_may_be_a_part_of_the_content(streams: bool) -> None:
    parts = [{"type": "text", "text": ""}, {"type": "refusal", "refusal": "I will not."}]
    play = stream(chunk({"content": parts}, "stop"), "[DONE]") if streams else say(None, content=parts)
    with FaultServer([play]) as server:
        reply = await Desk(server, {"stream": streams}).ask()
    assert (reply.text, reply.refusal, reply.stopped) == ("", "I will not.", "refused")


@pytest.mark.parametrize("count", [10**400, 1e300, MOST_TOKENS + 1, -1], ids=["long", "huge", "large", "negative"])
async def test_a_count_that_no_request_has_gives_way_to_ours(count: float) -> None:
    with FaultServer([say("all of it", usage={"prompt_tokens": count, "completion_tokens": 1})]) as server:
        usage = (await Desk(server).ask()).usage
    assert server.requests() == 1
    assert usage.estimated
    assert 0 < usage.input_tokens < 1000


async def test_what_a_server_adds_to_a_call_goes_back_with_it_and_to_no_other_model() -> None:
    def signed(body: dict[str, Any]) -> None:
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                if body["model"] == "m" and call["function"]["arguments"] == "{}" and "extra_content" not in call:
                    raise RefusedError("Function call is missing a thought_signature in functionCall parts.")
                if body["model"] != "m" and "extra_content" in call:
                    raise RefusedError("Extra inputs are not permitted")

    first = piece(0, "crm__find", "{}", id="a", extra_content=SIGNED)
    second = piece(1, "crm__find", '{"b": 1}', id="b")
    with FaultServer(lambda asked: say("done") if asked.turn else calls(first, second), signed) as server:
        asking = Desk(server)
        made = turn(await asking.ask())
        assert (await asking.ask(*made)).text == "done"
        assert (await Desk(server, {"model": "other"}).ask(*made)).text == "done"
    assert [call.get("extra_content") for call in server.asked[1].body["messages"][2]["tool_calls"]] == [SIGNED, None]
    assert (server.requests(), server.refused, server.invalid) == (3, [], [])


async def test_a_refusal_that_is_nested_without_end_is_a_refusal() -> None:
    deep = raw_body(b"[" * 100_000, 400)
    with FaultServer([deep]) as server, pytest.raises(ModelRequestRejected, match=r"HTTP 400: \[\["):
        await Desk(server).ask()
