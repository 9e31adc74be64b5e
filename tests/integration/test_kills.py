"""Machines die: workers and the server by SIGKILL, at bad moments."""

import threading
from pathlib import Path

import pytest
from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.integration.kit import Stack, call, kill, pending, replay, say, until
from workers.client import DATA_CONVERTER


async def test_a_worker_killed_during_a_model_request_costs_at_most_that_request(stack: Stack, client: Client) -> None:
    stack.script("kills", *(call("list_files", f"step {n}", path=".") for n in range(4)), say("done"))
    stack.bundle("kills", ["list_files"])
    asked, killed = threading.Event(), threading.Event()

    def hold(_: str, index: int) -> None:
        if index == 2:
            asked.set()
            killed.wait(60)  # the answer comes after the kill: the request is in flight when the worker dies

    stack.serve_model(on_turn=hold)
    first = stack.start_worker()
    run = await stack.start({"goal": "go on", "bundle": "kills"})
    await until(asked.is_set, what="the third model request")
    kill(first)
    killed.set()
    stack.start_worker()
    result = await client.get_workflow_handle(run).result()
    asked_for = stack.requests("kills")
    assert result["status"] == "completed"
    assert asked_for == {"0": 1, "1": 1, "2": 2, "3": 1, "4": 1}
    assert result["turns"] == 5


async def test_a_run_started_without_any_worker_waits_and_then_completes(stack: Stack, client: Client) -> None:
    stack.script("later", say("here I am"))
    stack.bundle("later", [])
    stack.serve_model()
    run = await stack.start("be patient", raw='{"goal": "be patient", "bundle": "later"}')
    sent = await stack.send("signal", run, "message", {"text": "early", "by": "ann"})
    assert sent.returncode == 0
    async with stack.worker():
        result = await client.get_workflow_handle(run).result()
    assert result["output"] == "here I am"


async def test_the_server_killed_and_restarted_in_the_middle_of_a_run_loses_nothing(tmp_path: Path) -> None:
    with EmbeddedTemporal(tmp_path / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
        stack = Stack(server.address, tmp_path / "stack", "server-killed")
        stack.script(
            "server", call("write_file", "one", path="a.txt", content="A"), call("list_files", path="."), say("done")
        )
        stack.bundle("server", ["write_file", "list_files"])
        stack.serve_model()
        stack.start_worker()
        try:
            client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
            run = await stack.start({"goal": "go on", "bundle": "server"})
            asked = (await pending(client.get_workflow_handle(run)))[0]
            server.kill()
            server.restart()
            client = await Client.connect(server.address, data_converter=DATA_CONVERTER)

            async def approve() -> bool:
                sent = await stack.send("update", run, "approve", {"code": asked["code"], "by": "ann"})
                return sent.returncode == 0

            await until(approve, what="an approval after the restart")
            result = await client.get_workflow_handle(run).result()
            assert result["status"] == "completed"
            assert stack.requests("server") == {"0": 1, "1": 1, "2": 1}
            assert [effect["attempts"] for effect in result["effects"]] == [1]
            await replay(client, [run])
        finally:
            stack.close()


async def test_a_run_replays_at_every_task_without_a_workflow_cache(stack: Stack, client: Client) -> None:
    stack.script(
        "cold",
        call("list_files", path="."),
        call("write_file", path="a.txt", content="A"),
        call("read_file", path="a.txt"),
        say("done"),
    )
    stack.bundle("cold", ["list_files", "read_file", "write_file"])
    stack.serve_model()
    async with stack.worker(max_cached_workflows=0):
        run = await stack.start({"goal": "go on", "bundle": "cold"})
        handle = client.get_workflow_handle(run)
        asked = (await pending(handle))[0]
        await handle.execute_update("approve", {"code": asked["code"], "by": "ann"})
        result = await handle.result()
    assert result["status"] == "completed"
    assert stack.requests("cold") == {"0": 1, "1": 1, "2": 1, "3": 1}


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_waiting_run_can_be_ended_from_outside(stack: Stack, client: Client, how: str) -> None:
    stack.script("ends", call("write_file", path="a.txt", content="A"), say("never"))
    stack.bundle("ends", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "wait", "bundle": "ends"})
        handle = client.get_workflow_handle(run)
        await pending(handle)
        done = await stack.temporal("workflow", how, "-w", run)
        assert done.returncode == 0, done.stderr

        async def ended() -> bool:
            description = await handle.describe()
            return description.status is not None and description.status.name in ("CANCELED", "TERMINATED")

        await until(ended)
    assert not (stack.folder / "workspaces").exists() or not list((stack.folder / "workspaces").rglob("a.txt"))
