"""What a run may cost and hold, through the real gateway and worker: budgets, overfull contexts, schemas, leaks."""

import json
from functools import partial
from typing import Any

import pytest
from temporalio.client import Client

from activities.store import open_store
from activities.streaming import read_stream
from scripts.chat_protocol import RefusedError
from tests.faults.kit import Case, begin, finish, run_all, serve
from tests.faults.plays import STALL, ask, chunk, error, json_body, respond, say, stream, text_item
from tests.faults.server import Asked, Play
from tests.integration.kit import Stack, kill, until

LOOK: Play = ask(("list_files", {}))
NOW = {"wait": "0s"}


async def test_a_run_stops_at_the_first_limit_and_ends_with_what_there_is(stack: Stack, client: Client) -> None:
    price = {"price": {"input": 1000.0, "output": 1000.0}}  # 0.12 USD a turn
    three = ask(*[("list_files", {"path": str(n)}) for n in range(3)])
    cases = {
        "turns": Case([LOOK], start={"budget": {"turns": 4, **NOW}}),
        "tokens": Case([ask(("list_files", {}), text="I look.")], start={"budget": {"tokens": 500, **NOW}}),
        "cost": Case([LOOK], model=price, start={"budget": {"cost_usd": 0.3, **NOW}}),
        "calls": Case([three], start={"budget": {"tool_calls": 4, **NOW}}, look=True),
        "spent_on_failures": Case(
            [json_body({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 0}})] * 2 + [LOOK],
            model={"stream": False},
            start={"budget": {"tokens": 300, **NOW}},
        ),
    }
    await run_all(stack, client, **cases)
    ends = {name: (case.ended, len(case.asked)) for name, case in cases.items()}
    assert ends == {
        "turns": ("budget_exhausted", 4),
        "tokens": ("budget_exhausted", 4),  # 480 are used; the next call would read 100 at least
        "cost": ("budget_exhausted", 2),
        "calls": ("budget_exhausted", 2),
        "spent_on_failures": ("budget_exhausted", 3),
    }
    results = {name: case.result or {} for name, case in cases.items()}
    assert results["tokens"]["output"] == "I look."
    assert results["tokens"]["usage"] | {"cost_usd": 0} == {
        "requests": 4,
        "input_tokens": 400,
        "output_tokens": 80,
        "cached_tokens": 0,
        "cost_usd": 0,
        "estimated": False,
    }
    assert results["cost"]["usage"]["cost_usd"] == pytest.approx(0.24)
    assert results["spent_on_failures"]["usage"]["input_tokens"] == 2 * 90 + 100
    last = cases["calls"].transcript[-1]["answers"]
    assert ["limit of tool calls" in last[call] for call in sorted(last)] == [False, True, True]


async def test_a_raised_limit_goes_on_and_pays_for_nothing_twice(stack: Stack, client: Client) -> None:
    case = Case(lambda asked: say("done") if asked.turn == 5 else LOOK, start={"budget": {"turns": 2}})
    with serve(stack, case=case) as server:
        async with stack.worker():
            handle = await begin(stack, client, case)
            await until(lambda: _waits(handle), what="the stop")
            await handle.signal("rollover", {"by": "ann"})
            await handle.signal("budget", {"turns": 20, "by": "ann"})
            await finish(handle, case)
    assert (case.ended, len(case.asked), server.invalid) == ("completed", 6, [])
    assert case.result is not None
    assert (case.result["turns"], case.result["usage"]["requests"]) == (6, 6)


async def _waits(handle: Any) -> bool:
    return "budget" in (await handle.query("status"))["waiting_on"]


async def test_an_overfull_context_is_made_smaller_once(stack: Stack, client: Client) -> None:
    def play(asked: Asked) -> Play:
        if sum(len(json.dumps(message)) for message in asked.body["messages"]) > 40_000:
            return error(400, "This model's maximum context length is exceeded", "context_length_exceeded")
        return say("done") if asked.turn > 2 else ask(("bulk", {"size": 1_000_000 + asked.turn}))

    stack.environment["PERDURE_TOOLS"] = "tests.integration.slow_tools"
    fits = Case(play, tools=["bulk"])
    never = Case([error(400, "This model's maximum context length is exceeded", "context_length_exceeded")])
    never_later = Case(lambda a: error(400, "prompt is too long", "context_length_exceeded") if a.number > 3 else LOOK)
    other = Case([error(400, "Invalid 'messages[1].name'")])
    await run_all(stack, client, fits=fits, never=never, never_later=never_later, other=other)
    assert fits.ended == "completed", fits.failure
    assert len(fits.asked) == 5  # one was too long: what it was made smaller by is remembered
    assert (never.ended, len(never.asked)) == ("ContextOverflow", 1)
    assert (never_later.ended, len(never_later.asked)) == ("ContextOverflow", 6)
    assert (other.ended, len(other.asked)) == ("ModelRequestRejected", 1)


async def test_a_final_answer_must_satisfy_its_schema(stack: Stack, client: Client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    start = {"output_schema": schema}
    fenced = Case([say('Sure:\n```json\n{"n": 1}\n```\nThat is it.')], start=start)
    mended = Case([say('{"n": "x"}'), say("{}"), say('{"n": 2}')], start=start)
    never = Case([say('{"n": "x"}')], start=start)
    by_tool = Case([LOOK, ask(("final_answer", {"n": 3}))], start=start, model={"structured": "tool"})
    refused = Case(lambda asked: say('{"n": 4}') if asked.turn else LOOK, start=start, model={"structured": "native"})

    def no_schemas(body: dict[str, Any]) -> None:
        if "response_format" in body:
            raise RefusedError("json_schema is not supported")

    await run_all(
        stack, client, no_schemas, fenced=fenced, mended=mended, never=never, by_tool=by_tool, refused=refused
    )
    got = [case.result["structured"] for case in (fenced, mended, by_tool, refused) if case.result]
    assert got == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert (never.ended, len(never.asked)) == ("InvalidModelOutput", 3)
    assert 'n: it is not of type "integer"' in never.failure.message
    assert len(refused.asked) == 3  # refused once, remembered by the run


async def test_fallback_leaks_and_the_other_wire_format_in_one_run_each(stack: Stack, client: Client) -> None:
    routes = {"model": [{"model": "fallback"}, {"model": "second"}]}
    fallback = Case([error(404)], bundle=routes)
    leaked = Case([say('<tool_call>{"name": "list_files"}</tool_call>'), say("done")])
    responses = Case([respond(text_item("good"))], model={"api": "responses"})
    empty = Case([say(""), say("  \n"), say("done")])
    never = Case([say("")])
    await run_all(stack, client, fallback=fallback, leaked=leaked, responses=responses, empty=empty, never=never)
    assert [case.ended for case in (fallback, leaked, responses, empty)] == ["completed"] * 4
    assert (fallback.result or {})["output"] == "another model"
    assert (fallback.result or {})["usage"]["requests"] == 2
    assert "not as text" in leaked.asked[1].body["messages"][-1]["content"]
    assert (responses.result or {})["output"] == "good"
    assert (never.ended, len(never.asked)) == ("InvalidModelOutput", 5)


async def test_what_a_failed_attempt_said_is_not_shown_and_nothing_of_it_is_in_history(
    stack: Stack, client: Client
) -> None:
    key = stack.environment["OPENAI_API_KEY"]
    half = stream(chunk({"content": f"half {key}"}), end="cut")
    case = Case([half, say(f"The key is {key}, said the whale.")])
    await run_all(stack, client, case=case)
    handle = client.get_workflow_handle(f"{stack.name}-case")
    history = (await handle.fetch_history()).to_json()
    store = open_store(stack.environment["PERDURE_STORE"])
    thread = (await handle.result())["checkpoint"]["key"].split("/checkpoints/")[0].removeprefix("threads/")
    pieces = await read_stream(store, thread.replace("/", "."))
    assert "".join(piece.text for piece in pieces) == "The key is [redacted], said the whale."
    assert key not in history
    bodies = [await store.get(name) for name in await store.keys("threads")]
    assert not [body for body in bodies if body and key.encode() in body]


async def test_an_error_of_ours_ends_the_run_with_a_name(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("a value that must not be told")

    monkeypatch.setattr("activities.patience.MOST_CRASHES", 2)
    monkeypatch.setattr("activities.turn.read_reply", broken)
    case = Case([say("hello")])
    await run_all(stack, client, case=case)
    assert (case.ended, len(case.asked)) == ("ModelUnavailable", 2)
    assert "unexpected KeyError at" in case.failure.message
    assert "must not be told" not in case.failure.message


@pytest.mark.all
async def test_ten_killed_workers_change_nothing_of_what_a_run_reports(stack: Stack, client: Client) -> None:
    """Five are killed while the model thinks, five just after it has said something."""
    thought_about = (1, 4, 7, 10, 13)

    def play(asked: Asked) -> Play:
        return say("done") if asked.turn == 15 else LOOK

    def thinking(asked: Asked) -> Play:
        first = sum(each.turn == asked.turn for each in killed.asked) == 1
        return STALL if first and asked.turn in thought_about else play(asked)

    killed, calm = Case(thinking), Case(play)
    with serve(stack, killed=killed, calm=calm) as server:
        async with stack.worker():
            await finish(await begin(stack, client, calm), calm)
        handle = await begin(stack, client, killed)
        for turn in thought_about:
            for last in (turn - 1, turn):  # the run comes no further than the turn that is thought about
                worker, before = stack.start_worker(), len(killed.asked)
                await until(partial(_asks, killed, before, last), 120, f"turn {last}")
                kill(worker)
        stack.start_worker()
        await finish(handle, killed, 600)
    assert calm.result is not None
    assert killed.result is not None
    assert killed.result["usage"] == calm.result["usage"]
    assert killed.result["turns"] == calm.result["turns"] == 16
    assert len(thought_about) <= len(killed.asked) - killed.result["usage"]["requests"] <= 2 * len(thought_about)
    assert server.invalid == []


def _asks(case: Case, before: int, turn: int) -> bool:
    return any(asked.turn >= turn for asked in case.asked[before:])
