"""What requests cost that gave no turn: it is counted however the run ends, and the limits hold for it too."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.faults.kit import Case, begin, finish, serve
from tests.faults.plays import STALL, ask, error, json_body, say
from tests.faults.server import Asked, Play
from tests.integration.kit import Stack, until

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}
SHORT = {"context_tokens": 1800, "stream": False, "unavailable_after": "1s"}
"""One call with that usage fills this context, so that a handoff is due after it."""

NOTHING = json_body({"choices": [], "usage": {"prompt_tokens": 50_000, "completion_tokens": 10}})


def handing(*over: Play) -> Case:
    """A run that is at its first handoff after one turn: what the model says there."""

    def plan(asked: Asked) -> Play:
        if "session ends here" in json.dumps(asked.body).lower():
            return over[min(asked.number - 1, len(over) - 1)]
        return ask(("list_files", {"path": "."}), usage=USAGE)

    return Case(plan, model=SHORT)


async def test_what_failed_is_counted_when_it_ends_the_run_and_a_handoff_keeps_the_limits(
    stack: Stack, client: Client
) -> None:
    over = handing(say("no JSON", usage=USAGE))
    over.bundle = {"budget": {"tokens": 3000, "wait": "0s"}}
    down = handing(error(500, "no"))
    lost = Case([ask(("list_files", {}), usage=USAGE), NOTHING, error(400, "no")], model={"stream": False})
    with serve(stack, over=over, down=down, lost=lost) as server:
        async with stack.worker():
            handles = [await begin(stack, client, case) for case in (over, down, lost)]
            for handle, case in zip(handles, (over, down, lost), strict=True):
                await finish(handle, case)
            used = [(await handle.query("status"))["usage"] for handle in handles]
    assert (over.ended, server.requests("over"), over.result and over.result["sessions"]) == ("budget_exhausted", 2, 2)
    assert used[0]["input_tokens"] + used[0]["output_tokens"] == 3000
    assert (down.ended, used[1]["requests"]) == ("ModelUnavailable", server.requests("down"))
    assert (lost.ended, server.requests("lost")) == ("ModelRequestRejected", 3)
    assert (used[2]["requests"], used[2]["input_tokens"]) == (3, 51_000)


async def test_what_failed_is_counted_when_the_run_is_cancelled_before_anything_came_of_it(
    stack: Stack, client: Client
) -> None:
    look = ask(("list_files", {}), usage=USAGE)
    cases = {
        "turn": Case([look, NOTHING, STALL], model={"stream": False}),
        "handoff": handing(NOTHING, STALL),
        "parked": Case([look, NOTHING, error(429, retry_after="100000")], model={"stream": False}),
    }
    with serve(stack, **cases):
        async with stack.worker():
            handles = {name: await begin(stack, client, case) for name, case in cases.items()}

            async def parked() -> Any:
                return (await handles["parked"].query("status"))["waiting_on"]

            await until(lambda: all(len(case.asked) == 3 for case in cases.values()))
            await until(parked)
            used = {}
            for name, handle in handles.items():
                await handle.cancel()
                with pytest.raises(WorkflowFailureError):
                    await handle.result()
                used[name] = (await handle.query("status"))["usage"]
    counted = {name: (usage["requests"], usage["input_tokens"]) for name, usage in used.items()}
    assert counted == {"turn": (2, 51_000), "handoff": (2, 51_000), "parked": (3, 51_000)}
