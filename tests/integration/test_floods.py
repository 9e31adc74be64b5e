"""As many messages at once as the server takes for one execution: nobody served the run when they came."""

import asyncio

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, call, pending, say
from tests.integration.test_bad_messages import task_failures

MOST = 9_990
"""The server refuses more than 10,000 signals to one execution."""


@pytest.mark.all
async def test_a_run_takes_all_the_signals_that_came_while_no_worker_was_there(stack: Stack, client: Client) -> None:
    stack.script("flood", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("flood", ["write_file"])
    stack.serve_model()
    handle = client.get_workflow_handle(await stack.start({"goal": "write", "bundle": "flood"}))
    places = asyncio.Semaphore(48)

    async def send() -> None:
        async with places:
            await handle.signal("message", {"text": "a note", "by": "ann"})

    await asyncio.gather(*(send() for _ in range(MOST)))
    async with stack.worker():
        await pending(handle)
        assert await task_failures(handle) == []
        said = await handle.query("transcript")
        log = await handle.query("decisions")
        await handle.terminate()
    assert len([each for each in said if each["role"] == "user"]) == 49, "the transcript shows the last 50 lines"
    assert log == []
