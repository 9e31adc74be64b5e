"""What servers say in words of their own, and what is wrong on our side: ends of answers, empty accounts, addresses."""

from typing import Any

import pytest

from activities.errors import Failure, ModelRequestRejected, ModelTrouble, RateLimited
from activities.gateway import Gateway
from activities.manifest import Model
from activities.reading import kind_of
from activities.reply import Ask, NoSink, read_finish
from activities.trail import Trail
from tests.faults.plays import call_item, chunk, chunks, ended, error, json_body, respond, say, stream
from tests.faults.server import FaultServer, Play
from tests.unit.gateway_kit import USER, Desk

CALL = {"id": "c", "type": "function", "function": {"name": "crm__find", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *((word, "length") for word in ("length", "MAX_TOKENS", "max_tokens", "model_length")),
        *((word, "content_filter") for word in ("content_filter: SAFETY", "SAFETY", "sensitive", "refusal")),
        *((word, "content_filter") for word in ("PROHIBITED_CONTENT", "recitation", "FINISH_REASON_SAFETY")),
        *((word, "error") for word in ("error", "abort", "insufficient_system_resource")),
        *((word, "stop") for word in ("stop", "STOP")),
        *((word, None) for word in (None, "", " ", "null", "None", False, True, 0, ["stop"])),
        ("tool_calls", "tool_calls"),
    ],
)
def test_every_spelling_of_an_end_is_read(said: Any, meant: str | None) -> None:
    assert read_finish(said) == meant


async def test_ends_in_a_servers_own_words_are_acted_on_like_ours() -> None:
    plays = [
        say("half a text", "MAX_TOKENS"),
        say("half", "content_filter: SAFETY", tool_calls=[CALL]),
        respond(call_item("crm__find"), status="incomplete", incomplete_details={"reason": "SAFETY"}),
    ]
    with FaultServer(plays) as server:
        asking = Desk(server)
        limited, filtered = await asking.ask(), await asking.ask()
        response = await Desk(server, {"api": "responses"}).ask()
    assert (limited.cut, kind_of(limited)) == (True, "empty")
    assert (kind_of(filtered), kind_of(response)) == ("content_filtered", "content_filtered")
    with FaultServer([say("half a text", "abort", tool_calls=[CALL]), say("good")]) as server:
        assert (await Desk(server).ask()).text == "good"


def calls(*arguments: str) -> list[Any]:
    """A stream of calls without a finish reason, up to its `[DONE]`."""
    made = [{**CALL, "id": f"c{n}", "function": {"name": "crm__find", "arguments": a}} for n, a in enumerate(arguments)]
    return chunks({"content": None, "tool_calls": made}, None, None)


async def test_done_is_an_end_of_what_is_whole_though_no_reason_is_given() -> None:
    text = stream(*chunks({"content": "all of it"}, None, None))
    with FaultServer([text, stream(*calls('{"a": 1}', "{}"))]) as server:
        asking = Desk(server)
        answer, called = await asking.ask(), await asking.ask()
    assert (answer.text, server.requests()) == ("all of it", 2)
    assert [call.arguments for call in called.calls] == ['{"a": 1}', "{}"]


NO_REASONS: tuple[Any, ...] = ("null", "none", False, 0)
CUT: dict[str, Play] = {
    "no end at all": stream(*calls("{}")[:-1]),
    "cut before the end": ended(stream(*calls("{}")), "cut", 3),
    "arguments cut": stream(*calls("{}", '{"a": ')),
    "no arguments yet": stream(*calls("{}", "")),
    "a number may go on": stream(*calls("1")),
    "text without an end": stream(chunk({"content": "half"})),
    **{f"the reason {no!r}": stream(chunk({"content": "half"}, no)) for no in NO_REASONS},
    **{
        f"a call, and the reason {no!r}": stream(chunk({"tool_calls": [{**CALL, "index": 0}]}, no)) for no in NO_REASONS
    },
    "a stream of messages": stream({"choices": [{"index": 0, "message": {"content": "half"}}]}),
}


@pytest.mark.parametrize("name", CUT)
async def test_what_may_be_cut_is_asked_again(name: str) -> None:
    with FaultServer([CUT[name], say("good")]) as server:
        assert (await Desk(server).ask()).text == "good"
    assert server.requests() == 2


async def test_a_body_is_whole_and_a_stream_of_messages_is_with_its_end() -> None:
    body = {"choices": [{"index": 0, "message": {"content": "all of it"}}]}
    with FaultServer([json_body(body), stream(body, "[DONE]")]) as server:
        desk = Desk(server)
        assert [(await desk.ask()).text for _ in range(2)] == ["all of it"] * 2
    assert server.requests() == 2


async def test_done_does_not_end_a_response() -> None:
    created = {"type": "response.created", "response": {"object": "response", "status": "in_progress"}}
    delta = {"type": "response.output_text.delta", "delta": "half"}
    with FaultServer([stream(created, delta, "[DONE]"), respond(call_item("crm__find"))]) as server:
        assert len((await Desk(server, {"api": "responses"}).ask()).calls) == 1
    assert server.requests() == 2


EMPTY: dict[str, Play] = {
    "code": error(429, "You exceeded your current quota", "insufficient_quota"),
    "type": json_body({"error": {"message": "no credits", "type": "insufficient_quota", "code": "other"}}, 429),
    "status": error(402, "Insufficient Balance", "invalid_request_error"),
    "reseller": error(403, "user quota is not enough", "insufficient_user_quota"),
    "limit": error(400, "Billing hard limit has been reached", "billing_hard_limit_reached"),
    "stream": stream({"error": {"code": 402, "message": "Insufficient credits"}}),
}


@pytest.mark.parametrize("name", EMPTY)
async def test_an_empty_account_parks_the_run_after_one_request(name: str) -> None:
    with FaultServer([EMPTY[name]]) as server, pytest.raises(RateLimited, match="no quota left") as failed:
        await Desk(server, {"retry_after_cap": "10m"}).ask()
    assert (server.requests(), failed.value.details[0]) == (1, 600.0)


async def test_a_limit_by_the_minute_is_no_empty_account() -> None:
    said = "You exceeded your current quota: input_token_count per minute"
    with FaultServer([error(429, said, "429")]) as server, pytest.raises(ModelTrouble):
        await Desk(server).ask()


@pytest.mark.parametrize(
    ("url", "key", "named"),
    [
        ("localhost:8000/v1", "sk-secret", "OPENAI_BASE_URL"),
        ("http://localhost:port/v1", "sk-secret", "OPENAI_BASE_URL"),
        ("http://me:secret@[::1/v1", "sk-secret", "OPENAI_BASE_URL"),
        ("http:///v1", "sk-secret", "OPENAI_BASE_URL"),
        ("ftp://secret.example/v1", "sk-secret", "OPENAI_BASE_URL"),
        ("http://sec\tret.example:99999999/v1", "sk-secret", "OPENAI_BASE_URL"),
        ("http://127.0.0.1:9/v1", "sk-“secret”", "OPENAI_API_KEY"),
        ("http://127.0.0.1:9/v1", "sk-\nsecret", "OPENAI_API_KEY"),
    ],
)
async def test_a_mistyped_variable_is_named_at_once_without_its_value(url: str, key: str, named: str) -> None:
    gateway = Gateway({"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}.get)
    route, trail = Model(model="m"), Trail()
    gateway.secrets_of([route])
    with pytest.raises(Failure) as failed:
        await gateway.ask(0, route, Ask("", [USER], []), trail, 0.0, NoSink())
    await gateway.close()
    assert isinstance(failed.value, ModelRequestRejected)
    assert named in failed.value.message
    assert "ret" not in failed.value.message.replace(named, "")
    assert trail.requests == 0


@pytest.mark.parametrize(
    "busy",
    [
        error(400, "The engine is currently overloaded", "engine_overloaded"),
        json_body({"error": {"message": "slow down", "type": "rate_limit_error", "code": None}}, 403),
        error(403, "You have exceeded a secondary rate limit", retry_after="1"),
        error(420, "no", retry_after="1"),
    ],
)
async def test_a_server_that_is_busy_under_another_status_is_asked_again(busy: Play) -> None:
    with FaultServer([busy, say("good")]) as server:
        desk = Desk(server)
        with pytest.raises(ModelTrouble):
            await desk.ask()
        assert (await desk.ask()).text == "good"


async def test_a_request_that_was_cancelled_on_its_way_is_asked_again_at_once() -> None:
    with FaultServer([error(499, "The operation was cancelled."), say("good")]) as server:
        assert (await Desk(server).ask()).text == "good"
    assert server.requests() == 2
