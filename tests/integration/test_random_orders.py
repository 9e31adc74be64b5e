"""Decisions in random order, with workers killed between them: each lands on its call."""

import asyncio
import random
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, calls, kill, pending, say
from tests.integration.test_batches import landed

NAMES = "abcde"
FATES = ("approve", "deny", "edit")
TOGETHER = 10


async def decide(handle: WorkflowHandle[Any, Any], code: str, name: str, fate: str, how: str) -> None:
    """As an update, which waits for a worker, or as a signal, which does not."""
    body: dict[str, Any] = {"code": code, "by": name}
    if fate == "edit":
        body["arguments"] = {"path": f"{name}.txt", "content": f"edited {name}"}
    verb = "deny" if fate == "deny" else "approve"
    await (handle.execute_update(verb, body) if how == "update" else handle.signal(verb, body))


@pytest.mark.all
@pytest.mark.parametrize("seed", range(5))
async def test_decisions_in_random_order_across_kills_land_on_their_calls(
    stack: Stack, client: Client, seed: int
) -> None:
    """Ten trials at once for each of five seeds: fifty in all."""
    chance = random.Random(seed)  # noqa: S311 - a test's own
    stack.script("five", calls(*(("write_file", {"path": f"{n}.txt", "content": n}) for n in NAMES)), say("done"))
    stack.bundle("five", ["write_file"])
    stack.serve_model()
    worker = stack.start_worker()
    runs = [await stack.start({"goal": "write", "bundle": "five"}) for _ in range(TOGETHER)]
    handles = [client.get_workflow_handle(run) for run in runs]
    codes = [
        {item["arguments"]["path"][0]: item["code"] for item in await pending(handle, 5, 120)} for handle in handles
    ]
    fates = [{name: chance.choice(FATES) for name in NAMES} for _ in runs]
    todo = [(number, name) for number in range(TOGETHER) for name in NAMES]
    chance.shuffle(todo)
    for begin in range(0, len(todo), 10):
        batch = todo[begin : begin + 10]
        sending = [
            asyncio.create_task(
                decide(handles[n], codes[n][name], name, fates[n][name], chance.choice(("update", "signal")))
            )
            for n, name in batch
        ]
        await asyncio.sleep(chance.random())
        kill(worker)
        worker = stack.start_worker()
        await asyncio.gather(*sending)
        if chance.random() < 0.5:
            await handles[batch[0][0]].signal("rollover", {"by": "ops"})
    for handle, fate in zip(handles, fates, strict=True):
        landed(await handle.result(), fate)
