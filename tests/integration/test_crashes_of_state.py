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
    await check_chain(stack, run, 6)


HANDOFFS = [
    pytest.param("before:/handoffs/", 2, id="artifact-made-and-not-stored"),
    pytest.param("half:/handoffs/", 2, id="artifact-half-written"),
    pytest.param("written:/handoffs/", 2, id="artifact-written-and-not-published"),
    pytest.param("after:/handoffs/", 1, id="artifact-stored-and-not-recorded"),
    pytest.param("session:", 1, id="recorded-and-the-next-session-not-begun"),
]


@pytest.mark.all
@pytest.mark.parametrize(("at", "asked"), HANDOFFS)
async def test_a_worker_killed_around_a_handoff(stack: Stack, client: Client, at: str, asked: int) -> None:
    steps = [call("write_file", f"Step {n}", path=f"{n}.txt", content="A long line. " * 80) for n in range(8)]
    stack.script("crash", *steps, say("All written."))
    stack.bundle(
        "crash",
        ["write_file"],
        policy=[{"tool": "write_file", "decision": "allow"}],
        model=[{"model": "crash", "context_tokens": 1800}],
    )
    stack.serve_model()
    flag = stack.folder / "crashed"
    dying = stack.start_worker(CRASH_AT=at, CRASH_FLAG=str(flag), PERDURE_TOOLS="tests.integration.tools_for_state")
    run = await stack.start({"goal": "write eight files", "bundle": "crash"})
    await until(lambda: dying.poll() is not None, 90, "the crash")
    assert flag.exists()
    stored = list((stack.folder / "store").glob("threads/*/*/handoffs/*/*.json"))
    before = [path.read_bytes() for path in stored]
    assert len(stored) == (0 if asked == 2 else 1)
    async with stack.worker():
        handle = client.get_workflow_handle(run)
        result = await handle.result()
    assert (result["status"], len(result["artifacts"])) == ("completed", 8)
    assert [path.read_bytes() for path in stored] == before, "the artifact that was stored is the one that counts"
    assert stack.requests("crash") == {str(number): 1 for number in range(9)}
    judged = stack.requests("crash/handoff")
    first, *later = [judged[turn] for turn in sorted(judged, key=int)]
    assert (first, set(later) - {1}) == (asked, set())
    assert result["sessions"] == 2 + len(later)
    assert result["usage"]["requests"] == 9 + 1 + len(later), "what a dead worker had asked for and not stored is lost"
    await check_chain(stack, run, 10)


async def check_chain(stack: Stack, run: str, records: int) -> None:
    """Every record is there and whole, and no half-written file can be read."""
    store = open_store(stack.environment["PERDURE_STORE"])
    thread = await thread_of(store, run)
    lines = await survey(store, thread)
    assert [(line.sequence, line.state) for line in lines] == [(number, "ok") for number in range(records)]
    assert await walk(store, thread, lines) == []
    assert not [name for name in await store.keys("threads") if name.endswith(".tmp")]
