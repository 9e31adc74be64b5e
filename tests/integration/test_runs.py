"""`perdure runs`: a run that is stuck never merely looks as if it ran."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from scripts.embedded import EmbeddedTemporal, free_port
from tests.integration.kit import Stack, call, calls, pending, say, until
from workers import causes
from workers.open_runs import OpenRun, open_runs

ALLOW = [{"tool": "*", "decision": "allow"}]


@workflow.defn(name="AgentRun", sandboxed=False)
class Buggy:
    """An AgentRun of a bad release."""

    @workflow.run
    async def run(self, value: RawValue) -> None:
        """Fails its workflow task."""
        raise ValueError("a bug in the workflow code")


class _Limited(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(429)
        self.send_header("Retry-After", "7200")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


@contextmanager
def rate_limited() -> Iterator[str]:
    """A model server that asks to wait two hours."""
    with HTTPServer(("127.0.0.1", 0), _Limited) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@asynccontextmanager
async def broken_worker(client: Client, queue: str) -> AsyncIterator[None]:
    """A worker of a bad release."""
    async with Worker(client, task_queue=queue, workflows=[Buggy], workflow_runner=UnsandboxedWorkflowRunner()):
        yield


async def cause_of(client: Client, run: str, kind: str, detail: str = "") -> OpenRun:
    """The run in the list, once it is said to wait for that and be stuck."""
    seen: list[OpenRun] = []

    async def look() -> OpenRun | None:
        seen[:] = [each for each in await open_runs(client) if each.seen.workflow_id == run]
        right = [each for each in seen if each.cause.kind == kind and detail in each.cause.detail]
        return right[0] if right and right[0].cause.is_stuck(datetime.now(UTC), timedelta(0)) else None

    try:
        found: OpenRun = await until(look, 60, f"{run} waits for {kind}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it was {[each.cause for each in seen]}") from None
    assert found.cause.remedy or kind == "running"
    return found


async def stuck(stack: Stack) -> dict[str, str]:
    """What the command says that the stuck runs of this test wait for."""
    done = await stack.shell("perdure runs --stuck --after 0s --json")
    assert done.returncode == 1, done.stderr
    rows = [row for row in json.loads(done.stdout) if row["workflow_id"].startswith(f"{stack.name}-")]
    assert [row["workflow_id"] for row in rows if not row["remedy"]] == []
    return {row["workflow_id"]: row["waits_for"] for row in rows}


@pytest.mark.all
async def test_ten_staged_ways_to_be_stuck_are_named(
    stack: Stack, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "UNTAKEN", timedelta(seconds=2))
    notes = str(stack.folder / "notes")
    ask = call("write_file", path="a.txt", content="A")
    for name in ("approval", "bundle", "budget", "slots", "tools", "paused"):
        turn = calls(*(("watching", {"seconds": 300 + n, "notes": notes}) for n in range(3)))
        stack.script(name, turn if name == "slots" else ask, say("done"))
    stack.bundle("approval", ["write_file"])
    stack.bundle("bundle", ["write_file"])
    stack.bundle("paused", ["write_file"])
    stack.bundle("budget", ["write_file"], budget={"turns": 0})
    stack.bundle("slots", ["watching"], policy=ALLOW)
    stack.bundle("down", [], model=[{"model": "down", "base_url_env": "DOWN_URL"}])
    stack.bundle("limited", [], model=[{"model": "limited", "base_url_env": "LIMITED_URL"}])
    stack.serve_model()
    stack.environment |= {
        "PERDURE_SLOTS_TOOLS": "2",
        "PERDURE_GRACE": "1",
        "DOWN_URL": f"http://127.0.0.1:{free_port()}",
    }
    stack.environment["PERDURE_TOOLS"] = "tests.integration.life_tools"

    def start(bundle: str) -> Any:
        return stack.start({"goal": "get stuck", "bundle": bundle}, f"{stack.name}-{bundle}")

    with rate_limited() as url:
        stack.environment["LIMITED_URL"] = url
        run = await start("bundle")
        await cause_of(client, run, "no_worker", stack.name)
        async with stack.worker():
            code = (await pending(client.get_workflow_handle(run)))[0]["code"]
        for manifest in (stack.folder / "store" / "bundles").glob("*.json"):
            manifest.unlink()
        async with stack.worker():
            await client.get_workflow_handle(run).execute_update("approve", {"code": code, "by": "ann"})
            await cause_of(client, run, "bundle")
            await cause_of(client, await start("approval"), "approval")
            await cause_of(client, await start("budget"), "budget")
            await cause_of(client, await start("down"), "model", "connection failed")
            await cause_of(client, await start("limited"), "rate_limit")
            paused = client.get_workflow_handle(await start("paused"))
            await pending(paused)
            await paused.signal("pause", {"by": "ann", "reason": "lunch"})
            await cause_of(client, paused.id, "paused")
            await cause_of(client, await start("slots"), "slots", "no slot")
            said = {name.rpartition("-")[2]: kind for name, kind in (await stuck(stack)).items()}
    said.pop("slots", None)  # after 15 s, in a process that is not patched
    own = ("approval", "bundle", "budget", "paused")
    assert said == {**{kind: kind for kind in own}, "down": "model", "limited": "rate_limit"}


async def test_a_failing_workflow_task_a_missing_tool_worker_and_a_broken_store_are_named(
    stack: Stack, client: Client
) -> None:
    stack.script("tools", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("tools", ["write_file"])
    stack.serve_model()
    queue = f"{stack.name}-buggy"
    async with broken_worker(client, queue):
        await client.start_workflow("AgentRun", "x", id=queue, task_queue=queue)
        found = await cause_of(client, queue, "task_failing", "a bug in the workflow code")
        assert found.cause.failing
        await client.get_workflow_handle(queue).terminate()
    async with stack.worker("agents"):
        value = {"goal": "get stuck", "bundle": "tools"}
        tools, store = await stack.start(value), await stack.start(value)
        codes = [(await pending(client.get_workflow_handle(run)))[0]["code"] for run in (tools, store)]
        await client.get_workflow_handle(tools).execute_update("approve", {"code": codes[0], "by": "ann"})
        await cause_of(client, tools, "no_worker", f"{stack.name}-tools")
        assert await stuck(stack) == {tools: "no_worker", store: "approval"}
        whole = (stack.folder / "store").rename(stack.folder / "moved")
        (stack.folder / "store").write_text("not a folder")
        async with stack.worker("tools"):
            await client.get_workflow_handle(store).execute_update("approve", {"code": codes[1], "by": "ann"})
            await cause_of(client, store, "store")
            assert (await stuck(stack))[store] == "store"
            (stack.folder / "store").unlink()
            whole.rename(stack.folder / "store")
            for run in (tools, store):
                with suppress(RPCError):  # it may have gone on by itself, to its end
                    await client.get_workflow_handle(run).signal("resume", {"by": "ann"})
                assert (await client.get_workflow_handle(run).result())["status"] == "completed"


@pytest.mark.all
async def test_the_command_lists_filters_and_tells_scripts(stack: Stack, client: Client) -> None:
    stack.script("asks", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("asks", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "ask", "bundle": "asks"})
        await pending(client.get_workflow_handle(run))
        await cause_of(client, run, "approval")
        listed = await stack.shell("perdure runs --waiting approval --json")
        assert listed.returncode == 0, listed.stderr
        row = next(row for row in json.loads(listed.stdout) if row["workflow_id"] == run)
        assert (row["waits_for"], row["stuck"], row["bundle"], row["turn"]) == ("approval", False, "asks@1", 1)
        shown = await stack.shell("perdure runs --stuck --after 0s")
        assert shown.returncode == 1
        assert "approval" in shown.stdout
        assert "perdure pending" in shown.stdout


@pytest.mark.all
@pytest.mark.parametrize("served", [True, False])
async def test_a_thousand_open_runs_are_listed_within_five_seconds(tmp_path: Path, served: bool) -> None:
    with EmbeddedTemporal(tmp_path / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
        stack = Stack(server.address, tmp_path / "stack", "thousand")
        stack.script("asks", call("write_file", path="a.txt", content="A"), say("done"))
        stack.bundle("asks", ["write_file"])
        stack.serve_model()
        client = await Client.connect(server.address)
        start = partial(client.start_workflow, "AgentRun", {"goal": "ask", "bundle": "asks"}, task_queue=stack.name)
        for part in range(20):
            await asyncio.gather(*(start(id=f"run-{part}-{number}") for number in range(50)))
        kind = "approval" if served else "no_worker"
        if served:
            stack.start_worker()

        async def all_there() -> bool:
            found = await open_runs(client)
            return len([each for each in found if each.cause.kind == kind]) == 1000

        try:
            await until(all_there, 400, "a thousand runs that wait")
            began = time.monotonic()
            found = await open_runs(client)
            took = time.monotonic() - began
        finally:
            stack.close()
        sys.stderr.write(f"1000 open runs that wait for {kind}: {took:.2f} s\n")
        assert len(found) == 1000
        assert took < 5
