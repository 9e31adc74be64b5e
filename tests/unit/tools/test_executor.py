from __future__ import annotations

import asyncio
import contextvars
import importlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from activities.tools import Operation, ToolCrash, ToolError, ToolTimeout, tool
from activities.tools.executor import Executor
from tests.unit.tools import tools_for_tests as made

OP = Operation(operation_id="run.1:t:1", tool="t", thread="run.1", workspace=Path(), credentials={"crm": "s3cret"})


@pytest.fixture
async def executor() -> AsyncIterator[Executor]:
    made_here = Executor(threads=4)
    yield made_here
    made_here.close()


async def test_late_and_cancelled_threads_do_not_eat_the_pool(executor: Executor) -> None:
    release = threading.Event()

    @tool(effect="read")
    def stuck() -> None:
        release.wait(30)

    @tool(effect="read")
    def quick() -> str:
        return "done"

    late = [executor.run(stuck, {}, OP, 0.05) for _ in range(25)]
    assert {type(one) for one in await asyncio.gather(*late, return_exceptions=True)} == {ToolTimeout}
    for _ in range(25):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(executor.run(stuck, {}, OP, 30), 0.01)
    assert await executor.run(quick, {}, OP, 1) == "done"
    release.set()


async def test_no_more_threads_run_than_the_pool_has(executor: Executor) -> None:
    now, most, lock = 0, 0, threading.Lock()

    @tool(effect="read")
    def count() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    await asyncio.gather(*(executor.run(count, {}, OP, 5) for _ in range(16)))
    assert most == 4


async def test_an_async_tool_that_blocks_blocks_neither_us_nor_the_next(
    executor: Executor, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @tool(effect="read", name="rude")
    async def rude() -> None:
        release.wait(30)

    @tool(effect="read")
    async def polite() -> str:
        await asyncio.sleep(0)
        return "done"

    blocked = asyncio.create_task(executor.run(rude, {}, OP, 2.2))
    gaps, before = [], time.monotonic()
    while not blocked.done():
        await asyncio.sleep(0.01)
        gaps.append(time.monotonic() - before)
        before = time.monotonic()
    with pytest.raises(ToolTimeout):
        await blocked
    assert max(gaps) < 0.5
    assert await executor.run(polite, {}, OP, 1) == "done"
    assert "the async tool rude has blocked" in caplog.text
    release.set()


async def test_what_waits_behind_a_blocked_loop_moves_or_surely_never_begins(executor: Executor) -> None:
    release, acted = threading.Event(), []

    @tool(effect="read", name="rude")
    async def rude() -> None:
        release.wait(60)

    @tool(effect="once", name="act")
    async def act(label: str) -> str:
        acted.append(label)
        return label

    blocked = asyncio.create_task(executor.run(rude, {}, OP, 60))
    await asyncio.sleep(0.05)
    short = asyncio.create_task(executor.run(act, {"label": "short"}, OP, 0.3))
    moved = asyncio.create_task(executor.run(act, {"label": "moved"}, OP, 60))
    with pytest.raises(ToolError, match=r"could not begin .* it was not run"):
        await short
    assert await moved == "moved"
    release.set()
    await blocked
    await asyncio.sleep(0.2)  # the loop that was blocked has come round to what it was given
    assert acted == ["moved"]


async def test_an_async_tool_is_cancelled_with_its_caller_and_at_its_deadline(executor: Executor) -> None:
    ended: list[str] = []

    @tool(effect="once")
    async def wait(name: str) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(name)

    with pytest.raises(ToolTimeout):
        await executor.run(wait, {"name": "late"}, OP, 0.05)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(executor.run(wait, {"name": "cancelled"}, OP, 30), 0.05)
    await asyncio.sleep(0.2)
    assert ended == ["late", "cancelled"]


async def test_an_exit_or_a_cancellation_inside_a_tool_is_its_own_failure(executor: Executor) -> None:
    @tool(effect="read")
    async def leave() -> None:
        raise SystemExit(1)

    @tool(effect="read")
    async def give_up() -> None:
        raise asyncio.CancelledError

    @tool(effect="read")
    def stop() -> None:
        raise StopIteration

    @tool(effect="read")
    def quit_() -> None:
        raise SystemExit(1)

    for one in (leave, give_up, stop, quit_):
        with pytest.raises(ToolCrash):
            await executor.run(one, {}, OP, 5)


async def test_a_tools_own_timeout_is_not_the_deadline(executor: Executor) -> None:
    @tool(effect="read")
    async def slow() -> None:
        raise TimeoutError("the other side")

    with pytest.raises(TimeoutError, match="the other side") as caught:
        await executor.run(slow, {}, OP, 5)
    assert not isinstance(caught.value, ToolTimeout)


async def test_tools_see_the_callers_context(executor: Executor) -> None:
    where = contextvars.ContextVar("where", default="nowhere")
    where.set("here")

    @tool(effect="read")
    async def on_loop() -> str:
        return where.get()

    @tool(effect="read")
    def in_thread() -> str:
        return where.get()

    assert [await executor.run(one, {}, OP, 5) for one in (on_loop, in_thread)] == ["here", "here"]


async def test_arguments_are_validated_before_anything_starts(executor: Executor) -> None:
    with pytest.raises(ValidationError):
        await executor.run(made.add, {"one": "x"}, OP, 5)


async def test_an_effect_runs_in_another_process(executor: Executor) -> None:
    assert await executor.run(made.act, {"how": "well"}, OP, 20) != os.getpid()
    assert await executor.run(made.add, {"one": "3"}, OP, 20) == 5
    assert await executor.call(made.subtract, OP, 5, seconds=20) != os.getpid()
    assert await executor.call(made.subtract, OP, 5, seconds=20, effect=False) == os.getpid()


async def test_secrets_reach_the_process_by_the_pipe_only(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CREDENTIAL_CRM", "s3cret")
    assert await executor.run(made.act, {"how": "secret"}, OP, 20) == {"secret": "s3cret", "environment": []}


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ("refuse", ToolError, "^not today$"),
        ("odd", ToolCrash, "OddError: salt and pepper"),
        ("die", ToolCrash, "exit code 7"),
        ("exit", ToolCrash, "SystemExit"),
        ("unpicklable", ToolCrash, "returned a function"),
    ],
)
async def test_failures_come_out_of_the_process(executor: Executor, how: str, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        await executor.run(made.act, {"how": how}, OP, 20)


async def test_a_process_that_dies_or_is_late_before_the_call_has_surely_not_acted(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match=r"could not begin .* it was not run"):
        await executor.run(made.act, {"how": "print"}, OP, 0.001)
    (tmp_path / "only_here.py").write_text(
        "import os\n"
        "from activities.tools import tool\n"
        "if os.environ['HERE'] != 'parent': raise KeyError('HERE')\n"
        "@tool(effect='once')\n"
        "def strange() -> str:\n"
        "    'Acts.'\n"
        "    return 'x'\n"
    )
    monkeypatch.setenv("HERE", "parent")
    monkeypatch.syspath_prepend(str(tmp_path))
    strange = importlib.import_module("only_here").strange
    monkeypatch.setenv("HERE", "child")
    with pytest.raises(ToolError, match="cannot be loaded in its own process, so it was not run"):
        await executor.run(strange, {}, OP, 30)


async def test_what_a_tool_prints_is_not_its_result(executor: Executor) -> None:
    assert await executor.run(made.act, {"how": "print"}, OP, 20) == "quiet"


@pytest.mark.parametrize("end", ["deadline", "cancel"])
async def test_a_process_is_killed_with_its_children(executor: Executor, tmp_path: Path, end: str) -> None:
    path = tmp_path / "alive"
    call = asyncio.create_task(executor.run(made.linger, {"path": str(path)}, OP, 8 if end == "deadline" else 60))
    while not os.path.exists(f"{path}.started"):  # noqa: ASYNC240
        assert not call.done()
        await asyncio.sleep(0.02)
    if end == "cancel":
        call.cancel()
    with pytest.raises(ToolTimeout if end == "deadline" else asyncio.CancelledError):
        await call
    size = path.stat().st_size
    await asyncio.sleep(0.3)
    assert path.stat().st_size == size


async def test_a_local_function_cannot_have_a_process(executor: Executor) -> None:
    @tool(effect="once")
    def local() -> None: ...

    with pytest.raises(ToolCrash, match="top level"):
        await executor.run(local, {}, OP, 5)


async def test_an_effect_does_not_outlive_a_killed_worker(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    code = (
        "import asyncio, sys\n"
        "from tests.unit.tools.test_executor import OP, Executor, made\n"
        "asyncio.run(Executor().run(made.linger, {'path': sys.argv[1]}, OP, 60))\n"
    )
    root = Path(__file__).parents[3]
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path), cwd=root)
    while not os.path.exists(f"{path}.started"):  # noqa: ASYNC240
        assert worker.returncode is None
        await asyncio.sleep(0.02)
    worker.kill()
    await worker.wait()
    await asyncio.sleep(0.2)
    size = path.stat().st_size
    await asyncio.sleep(0.3)
    assert path.stat().st_size == size
