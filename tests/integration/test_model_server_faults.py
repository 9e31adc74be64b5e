"""A model server that misbehaves, through the real gateway and worker: what is asked again, and what ends a run."""

import asyncio
import time
from email.utils import formatdate
from functools import partial
from itertools import pairwise
from typing import Any

from temporalio.client import Client

from tests.faults.kit import Case, begin, run_all, serve
from tests.faults.plays import (
    RESET,
    STALL,
    ask,
    chunk,
    chunks,
    ended,
    error,
    json_body,
    late,
    raw_body,
    say,
    stream,
)
from tests.faults.server import Asked, Raw
from tests.integration.kit import Stack, until

PLAIN: dict[str, Any] = {"stream": False}
QUICK: dict[str, Any] = {"idle_timeout": "1s", "unavailable_after": "4s"}


async def test_answers_that_hold_no_choice_are_asked_again_and_then_end_the_run(stack: Stack, client: Client) -> None:
    nothing = json_body({"id": "x", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}})
    fault = json_body({"id": "x", "choices": None, "error": {"message": "upstream sk-or-none", "code": 502}})
    thrice = Case([nothing, nothing, nothing, say("good")], model=PLAIN)
    inside = Case([fault, fault, say("good")], model=PLAIN)
    for_ever = Case([fault], model={**PLAIN, **QUICK})
    usage = {"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    first_and_last = Case([stream({"id": "c", "choices": []}, *chunks({"content": "hello"}, usage=None)[:-1], usage)])
    html = Case([raw_body(b"<html>Sign in</html>", content_type="text/html"), say("good")])
    plain_for_stream = Case([lambda asked: say("whole")(_plain(asked))])
    await run_all(
        stack,
        client,
        thrice=thrice,
        inside=inside,
        for_ever=for_ever,
        first_and_last=first_and_last,
        html=html,
        plain_for_stream=plain_for_stream,
    )
    assert (thrice.ended, len(thrice.asked)) == ("completed", 4)
    assert thrice.result is not None
    assert thrice.result["usage"]["requests"] == 4
    assert thrice.result["usage"]["input_tokens"] == 3 * 5 + 100
    assert (inside.ended, len(inside.asked)) == ("completed", 3)
    assert for_ever.ended == "ModelUnavailable"
    assert "(code, message)" in for_ever.failure.message
    assert first_and_last.result is not None
    assert (first_and_last.result["output"], first_and_last.result["usage"]["output_tokens"]) == ("hello", 2)
    assert (html.ended, len(html.asked)) == ("completed", 2)
    assert plain_for_stream.result is not None
    assert plain_for_stream.result["output"] == "whole"


def _plain(asked: Any) -> Any:
    """The request as if no stream had been asked for: a server that does not know how to."""
    return type(asked)(asked.path, {**asked.body, "stream": False}, asked.headers, asked.number, asked.turn, asked.at)


async def test_a_refusal_or_a_filter_ends_the_run_after_one_request(stack: Stack, client: Client) -> None:
    call = [
        {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": '{"path":"a","content":"b"}'}}
    ]
    cases = {
        "refusal": Case([say(None, refusal="I cannot help with that.")]),
        "refusal_plain": Case([say(None, refusal="I cannot help with that.")], model=PLAIN),
        "filtered": Case([say(None, finish="content_filter")]),
        "partly": Case([say("The first half", finish="content_filter")]),
        "with_call": Case([say(None, finish="content_filter", tool_calls=call)]),
        "prompt": Case([error(400, "The prompt was filtered", "content_filter")]),
    }
    await run_all(stack, client, **cases)
    assert {name: case.ended for name, case in cases.items()} == {
        "refusal": "refused",
        "refusal_plain": "refused",
        "filtered": "content_filtered",
        "partly": "content_filtered",
        "with_call": "content_filtered",
        "prompt": "content_filtered",
    }
    assert [len(case.asked) for case in cases.values()] == [1] * 6
    results = {name: case.result or {} for name, case in cases.items()}
    assert results["refusal"]["output"] == "I cannot help with that."
    assert results["partly"]["output"] == "The first half"
    assert results["with_call"]["effects"] == []


async def test_a_stream_cut_anywhere_is_asked_again_and_nothing_of_it_is_acted_on(stack: Stack, client: Client) -> None:
    call = ("write_file", {"path": "half.txt", "content": "half"})
    whole = ask(("write_file", {"path": "whole.txt", "content": "whole"}))
    faults = {
        "closed": ended(say("a long text that is cut off somewhere"), "cut", 5),
        "reset": ended(say("a long text that is cut off somewhere"), "reset", 3),
        "at_once": RESET,
        "stalled": ended(say("a long text that is cut off somewhere"), "stall", 3),
        "silent": STALL,
        "event": stream(chunk({"content": "half"}), {"error": {"message": "overloaded", "type": "server_error"}}),
        "no_end": stream(chunk({"content": "half"})),
        "no_end_in_call": stream(*[c for c in _call_chunks(call) if c != "[DONE]"][:-2]),
        "in_call": ended(ask(call), "cut", 4),
        "not_json": stream(chunk({"content": "half"}), '{"choices": [{"delta"'),
        "plain": lambda _: Raw(200, {"Content-Type": "application/json"}, (b'{"choices": [{"mess',), length=True),
    }
    cases = {name: Case([play, whole, say("done")], model={"idle_timeout": "1s"}) for name, play in faults.items()}
    await run_all(stack, client, **cases)
    for name, case in cases.items():
        assert case.ended == "completed", (name, case.failure)
        assert len(case.asked) == 3, name
        assert case.result is not None
        assert [item["path"] for item in case.result["artifacts"]] == ["whole.txt"], name


def _call_chunks(call: tuple[str, Any]) -> list[Any]:
    function = {"name": call[0], "arguments": '{"path": "half.txt", "content": "half"}'}
    return chunks({"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}, usage=None)


async def test_a_server_that_asks_to_wait_is_asked_when_it_said_and_no_sooner(stack: Stack, client: Client) -> None:
    def dated(asked: Asked) -> Raw:
        return error(429, retry_after=formatdate(time.time() + 3, usegmt=True))(asked)

    seconds = Case([error(429, retry_after="3"), error(429, retry_after="3"), say("good")])
    date = Case([dated, say("good")])
    throttled = Case([error(503, "ThrottlingException: too many requests"), say("good")])
    too_early = Case([error(409), error(408), say("good")])
    broken = Case([error(500), error(502), error(529), error(504), say("good")])
    await run_all(stack, client, seconds=seconds, date=date, throttled=throttled, too_early=too_early, broken=broken)
    times = [asked.at for asked in seconds.asked]
    assert (seconds.ended, len(times)) == ("completed", 3)
    assert min(later - sooner for sooner, later in pairwise(times)) >= 3
    assert (date.ended, len(date.asked)) == ("completed", 2)
    assert date.asked[1].at - date.asked[0].at >= 2
    assert (throttled.ended, len(throttled.asked)) == ("completed", 2)
    assert (too_early.ended, len(too_early.asked)) == ("completed", 3)
    assert (broken.ended, len(broken.asked)) == ("completed", 5)


async def test_a_wait_past_the_cap_parks_the_run_until_then_or_until_a_person_says_so(
    stack: Stack, client: Client
) -> None:
    parked = Case([error(429, retry_after="36000"), say("good")])
    odd = Case([error(429, retry_after="1e300"), error(429, retry_after="nan"), say("good")])
    with serve(stack, parked=parked, odd=odd) as server:
        async with stack.worker():
            for case in (parked, odd):
                handle = await begin(stack, client, case)
                status = await until(partial(_parked, handle), what="the park")
                assert status["waiting_on"] == ["rate_limit"]
                assert status["problem"]["type"] == "RateLimited"
                assert len(case.asked) == 1
                await handle.signal("resume", {"by": "ann"})
                case.result = await asyncio.wait_for(handle.result(), 60)
    assert (parked.ended, len(parked.asked)) == ("completed", 2)
    assert (odd.ended, len(odd.asked)) == ("completed", 3)
    assert server.invalid == []


async def _parked(handle: Any) -> dict[str, Any] | None:
    status: dict[str, Any] = await handle.query("status")
    return status if status["status"] == "parked" else None


async def test_what_a_retry_cannot_mend_fails_once_with_a_name_and_without_the_key(
    stack: Stack, client: Client
) -> None:
    key = stack.environment["OPENAI_API_KEY"]
    cases = {
        f"status_{status}": Case([error(status, f"You sent Authorization: Bearer {key}", "no_such_thing")])
        for status in (400, 401, 403, 404, 405, 413, 422)
    }
    no_key = Case([say("good")], model={"api_key_env": "NO_SUCH_KEY", "base_url_env": "NO_SUCH_URL"})
    unavailable = Case([error(500, f"Bearer {key}")], model=QUICK)
    await run_all(stack, client, **cases, no_key=no_key, unavailable=unavailable)
    for name, case in cases.items():
        assert (case.ended, len(case.asked)) == ("ModelRequestRejected", 1), name
        assert key not in str(case.failure)
        assert "[redacted]" in case.failure.message
    assert no_key.ended == "ModelRequestRejected"
    assert "NO_SUCH_KEY" in no_key.failure.message
    assert unavailable.ended == "ModelUnavailable"
    assert key not in unavailable.failure.message


async def test_a_slow_answer_is_given_up_before_the_activity_and_never_asked_for_twice_at_once(
    stack: Stack, client: Client
) -> None:
    slow = Case([late(say("too late"), 30), say("good")], model={**PLAIN, "total_timeout": "2s"})
    dripping = Case(
        [stream(*chunks({"content": "x" * 400}), gap=0.2), say("good")],
        model={"idle_timeout": "1s", "total_timeout": "2s"},
    )
    server = await run_all(stack, client, slow=slow, dripping=dripping)
    assert (slow.ended, len(slow.asked)) == ("completed", 2)
    assert (dripping.ended, len(dripping.asked)) == ("completed", 2)
    assert server.most_at_once <= 2  # the server may notice later than the client that it was left
