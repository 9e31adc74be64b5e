"""SIGKILL at every step of publishing a checkpoint: the chain holds, and what was published is not asked again."""

import pytest
from temporalio.client import Client

from activities.store import open_store
from scripts.records import survey, thread_of, walk
from tests.integration.kit import Stack, call, say, until

LONG = pytest.mark.all
STAGES = [
    pytest.param("before", "00000002.json", 2, marks=LONG, id="before-the-temporary-file"),
    pytest.param("half", "00000002.json", 2, marks=LONG, id="half-written"),
    pytest.param("written", "00000002.json", 2, marks=LONG, id="written-and-not-published"),
    pytest.param("after", "/00000002.json", 1, id="published-and-not-reported"),
    pytest.param("before", "/segments/", 1, marks=LONG, id="before-the-segment"),
    pytest.param("half", "/segments/", 1, marks=LONG, id="segment-half-written"),
    pytest.param("after", "/segments/", 1, marks=LONG, id="after-the-segment"),
]


@pytest.mark.parametrize(("stage", "key", "asked"), STAGES)
async def test_a_worker_killed_while_it_writes(stack: Stack, client: Client, stage: str, key: str, asked: int) -> None:
    stack.script("crash", *(call("list_files", f"step {number}", path=".") for number in range(4)), say("done"))
    stack.bundle("crash", ["list_files"])
    stack.serve_model()
    flag = stack.folder / "crashed"
    dying = stack.start_worker(
        CRASH_AT=f"{stage}:{key}",
        CRASH_FLAG=str(flag),
        CRASH_EVERY="3",  # so that checkpoint 2 is the last of the first segment
        PERDURE_TOOLS="tests.integration.tools_for_state",
    )
    run = await stack.start({"goal": "go on", "bundle": "crash"})
    await until(lambda: dying.poll() is not None, 90, "the crash")
    assert flag.exists()
    async with stack.worker():
        result = await client.get_workflow_handle(run).result()
    assert result["status"] == "completed"
    requests = stack.requests("crash")
    assert requests.pop("1") == asked
    assert requests == {"0": 1, "2": 1, "3": 1, "4": 1}
    store = open_store(stack.environment["PERDURE_STORE"])
    thread = await thread_of(store, run)
    lines = await survey(store, thread)
    assert [(line.sequence, line.state) for line in lines] == [(number, "ok") for number in range(6)]
    assert await walk(store, thread, lines) == []
    assert not [name for name in await store.keys("threads") if name.endswith(".tmp")]
