"""The Responses format behind the same record."""

import pytest

from activities.errors import ContextOverflow, ModelTrouble
from scripts.chat_protocol import RefusedError
from tests.faults.plays import (
    call_item,
    ended,
    error,
    json_body,
    reasoning_item,
    respond,
    response_events,
    say,
    stream,
    text_item,
)
from tests.faults.server import FaultServer, Play
from tests.unit.gateway_kit import Desk, turn

BOTH = pytest.mark.parametrize("streams", [True, False])


def desk(server: FaultServer, streams: bool = True, **more: object) -> Desk:
    return Desk(server, {"api": "responses", "stream": streams, "price": {"input": 1, "output": 2}, **more})


@BOTH
async def test_an_answer_and_its_cost(streams: bool) -> None:
    with FaultServer([respond(text_item("Good morning to you."))]) as server:
        asking = desk(server, streams, max_output_tokens=500)
        reply = await asking.ask()
    body = server.asked[0].body
    assert server.asked[0].path == "/v1/responses"
    assert (reply.text, reply.calls, reply.stopped, reply.cut) == ("Good morning to you.", [], None, False)
    assert (reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.output_tokens) == (100, 40, 20)
    assert reply.usage.cost_usd == pytest.approx(140e-6)
    assert asking.sink.text("text") == ("Good morning to you." if streams else "")
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]
    assert (body["instructions"], body["max_output_tokens"]) == ("Be brief.", 500)
    assert body["tools"][0]["name"] == "crm__find"


@BOTH
async def test_reasoning_goes_back_with_the_call_it_led_to(streams: bool) -> None:
    first = respond(reasoning_item(1), call_item("crm__find"), reasoning_item(2), call_item("crm__find", call_id="b"))
    with FaultServer([first, respond(text_item("done"))]) as server:
        asking = desk(server, streams)
        reply = await asking.ask()
        assert [call.provider_id for call in reply.calls] == ["call_1", "b"]
        await asking.ask(*turn(reply))
        await Desk(server, {"api": "responses", "model": "another"}).ask(*turn(reply))
    kinds = [item["type"] for item in server.asked[1].body["input"]]
    assert kinds == [
        "message",
        "reasoning",
        "function_call",
        "reasoning",
        "function_call",
        *["function_call_output"] * 2,
    ]
    assert server.asked[1].body["input"][1]["encrypted_content"] == "secret-thought-1"
    assert "reasoning" not in [item["type"] for item in server.asked[2].body["input"]]
    assert server.invalid == []


async def test_a_response_that_is_not_completed_is_not_taken_for_one() -> None:
    good = respond(text_item("good"))
    events = response_events({"object": "response", "status": "completed", "output": [text_item("half")]})
    faults: list[Play] = [
        ended(respond(text_item("a long text that is cut off")), "cut", 3),
        stream(*events[:-1]),
        stream(*events[:-1], {"type": "error", "code": "server_error", "message": "oh"}),
        respond(text_item("x"), status="failed", error={"code": "server_error", "message": "oh"}),
    ]
    for fault in faults:
        with FaultServer([fault, good]) as server:
            assert (await desk(server).ask()).text == "good"
        assert server.requests() == 2
    for nothing in (respond(), json_body({}), say("another format")):
        with FaultServer([nothing]) as server:
            asking = desk(server, streams=False)
            with pytest.raises(ModelTrouble, match="keys: "):
                await asking.ask()
        assert (server.requests(), asking.trail.unusable) == (1, 1)


@BOTH
async def test_limits_filters_and_refusals(streams: bool) -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    plays = [
        respond(call_item("crm__find", '{"a'), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        respond(status="incomplete", incomplete_details={"reason": "content_filter"}),
        respond(refusal),
    ]
    with FaultServer(plays) as server:
        asking = desk(server, streams)
        replies = [await asking.ask() for _ in plays]
    assert (replies[0].cut, replies[0].calls[0].arguments) == (True, '{"a')
    assert [reply.stopped for reply in replies] == [None, "content_filtered", "refused"]


async def test_an_overfull_context_is_known_as_a_status_and_as_an_event() -> None:
    told = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    for play in (error(400, told["message"], told["code"]), respond(status="failed", error=told)):
        with FaultServer([play]) as server, pytest.raises(ContextOverflow):
            await desk(server).ask()
        assert server.requests() == 1


async def test_a_schema_and_what_a_server_does_not_know() -> None:
    def refuse(body: dict[str, object]) -> None:
        if "include" in body:
            raise RefusedError("Unknown parameter: 'include'.")

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    with FaultServer([respond(text_item('{"a": 1}'))], refuse) as server:
        asking = desk(server, profile="openai")
        reply = await asking.ask(schema=schema)
        await asking.ask(schema=schema)
    assert (reply.mode, reply.quirks) == ("native", {"no_include"})
    assert server.asked[1].body["text"]["format"]["strict"] is True
    assert server.requests() == 3
