"""Many runs at once, with random faults of the model server, killed workers and denials."""

import asyncio
import hashlib
import os
import random
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from tests.faults.kit import Case, begin, finish, serve
from tests.faults.plays import RESET, ask, chunk, ended, error, json_body, say, stream
from tests.faults.server import Asked, Play
from tests.integration.kit import Stack, kill

RUNS = int(os.environ.get("PERDURE_CHAOS_RUNS", "300"))
AT_ONCE = 25
LAST = 4
DECLARED = {
    *("completed", "refused", "content_filtered", "budget_exhausted", "denied", "gave_up"),
    *("InvalidModelOutput", "ModelUnavailable", "ModelRequestRejected", "ContextOverflow"),
}
LOOK: tuple[str, Any] = ("list_files", {})


def faults() -> list[Play]:
    """What a server may play instead of the turn that was asked for."""
    return [
        error(500),
        error(429, retry_after="1"),
        error(503, "throttled"),
        RESET,
        ended(say("a text that is cut off"), "cut", 3),
        stream(chunk({"content": "half"}), {"error": {"message": "overloaded"}}),
        json_body({"choices": []}),
        say(""),
        ask(("no_such_tool", {})),
        ask(("write_file", '{"path": "half')),
        ask(("write_file", "[1]"), LOOK),
        say('<tool_call>{"name": "list_files"}</tool_call>'),
        ask(LOOK, finish="length"),
    ]


def plan(asked: Asked) -> Play:
    """The play of a request, by its run, turn and how often it was asked: the same in every run of this test."""
    seed = hashlib.sha256(f"{asked.model}/{asked.turn}/{asked.number}".encode()).digest()
    chance = random.Random(seed)  # noqa: S311 - no secret
    if chance.random() < 0.3:
        return chance.choice(faults())
    if asked.turn >= LAST:
        return say(None, refusal="No.") if chance.random() < 0.05 else say("done")
    path = f"{asked.turn}-{chance.randrange(10**6)}.txt"
    return ask(("write_file", {"path": path, "content": path}), LOOK)


async def decide(handle: Any, ending: "asyncio.Task[None]", chance: random.Random) -> None:
    """A person who approves and denies what is asked, until the run has ended."""
    while not ending.done():
        try:
            for request in await handle.query("pending"):
                if request["kind"] == "approval":
                    name = "deny" if chance.random() < 0.4 else "approve"
                    await handle.signal(name, {"code": request["code"], "by": "ann"})
        except Exception:  # noqa: BLE001 - no worker answers just now, or the run has ended
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)


@pytest.mark.all
async def test_every_run_ends_declared_and_no_published_turn_is_asked_for_again(stack: Stack, client: Client) -> None:
    chance = random.Random(7)  # noqa: S311
    asks = [{"tool": "write_file", "decision": "ask"}, {"tool": "*", "decision": "allow"}]
    model = {"idle_timeout": "2s", "unavailable_after": "60s", "retry_after_cap": "5s"}
    cases = {f"run-{n}": Case(plan, model=model, bundle={"policy": asks}) for n in range(RUNS)}
    gate = asyncio.Semaphore(AT_ONCE)
    with serve(stack, **cases) as server:

        async def one(case: Case) -> None:
            async with gate:
                handle = await begin(stack, client, case)
                ending = asyncio.create_task(finish(handle, case, 900))
                await asyncio.gather(ending, decide(handle, ending, chance))

        runs = asyncio.gather(*(one(case) for case in cases.values()))
        kills = 0
        while not runs.done():
            worker = stack.start_worker()
            await asyncio.wait([runs], timeout=chance.uniform(15, 40))
            kill(worker)
            kills += 1
        await runs
    ends = Counter(case.ended for case in cases.values())
    assert set(ends) <= DECLARED, ends
    assert server.invalid == []
    assert [turn for case in cases.values() for turn in asked_again(case)] == []
    print(f"{RUNS} runs, {kills} kills, {server.requests()} requests: {dict(ends)}")  # noqa: T201 - figures to look at


def asked_again(case: Case) -> list[str]:
    """Turns of a run that were asked for after a later turn had been: their checkpoints were published by then."""
    turns = [asked.turn for asked in case.asked]
    return [f"{case.name}: turn {turn}" for n, turn in enumerate(turns) if n and turn < max(turns[:n])]
