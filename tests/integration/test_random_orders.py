"""Decisions in random order, with workers killed between them: each lands on its call."""

import asyncio
import random
from functools import partial
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError

from tests.integration.kit import Stack, calls, kill, pending, say, until
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
    try:
        await (handle.execute_update(verb, body) if how == "update" else handle.signal(verb, body))
    except WorkflowUpdateFailedError as error:
        # It could not be judged while no worker was there, or the run rolled over.
        if "stays open" not in str(error.cause) and "again" not in str(error.cause):
            raise


async def insist(handle: WorkflowHandle[Any, Any], codes: dict[str, str], fates: dict[str, str]) -> bool:
    """Sends again what was refused with the request left open; whether nothing is open any more."""
    try:
        left = {item["code"] for item in await handle.query("pending")}
    except RPCError:  # no worker answers just now
        return False
    for name in [name for name in NAMES if codes[name] in left]:
        await decide(handle, codes[name], name, fates[name], "update")
    return not left


@pytest.mark.all
@pytest.mark.parametrize("seed", range(5))
async def test_decisions_in_random_order_across_kills_land_on_their_calls(
    stack: Stack, client: Client, seed: int
) -> None:
    """Ten trials at once for each of five seeds: fifty in all. A fifth kill could spend a call's attempts."""
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
    for begin in range(0, len(todo), 13):
        batch = todo[begin : begin + 13]
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
    for handle, code, fate in zip(handles, codes, fates, strict=True):
        await until(partial(insist, handle, code, fate), 120, "the end of all requests")
        landed(await handle.result(), fate)
