"""How a worker ends: in good order, within its time, with exit code 0, whatever it was doing."""

import asyncio
import json
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from scripts import scripted_model
from scripts.embedded import EmbeddedTemporal, free_port
from tests.integration.kit import Stack, call, say, until
from workers.client import DATA_CONVERTER

_CHUNK = scripted_model._Handler._chunk
TOOLS = {"PERDURE_TOOLS": "tests.integration.life_tools"}
SLACK = 10.0
"""A loaded machine takes its time to start and to reap a process."""


def log_of(stack: Stack, number: int) -> str:
    return (stack.folder / f"worker-{number}.log").read_text()


async def up(stack: Stack, number: int = 0) -> None:
    """Waits until worker `number` has said what it serves."""
    await until(lambda: "tools: " in log_of(stack, number), 120, "the worker's banner")


async def end(process: subprocess.Popen[bytes], grace: float, *, signals: int = 1) -> float:
    """Ends it by SIGTERM; checks code and time; gives the seconds that it took."""
    began = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5 if signals > 1 else 0)
    await until(lambda: process.poll() is not None, grace + SLACK, "the end of the worker")
    assert process.returncode == 0
    return time.monotonic() - began


def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (urllib.error.URLError, OSError):
        return 0, {}


def healthy(port: int, path: str, code: int) -> Callable[[], bool]:
    return lambda: probe(port, path)[0] == code


class SlowModel:
    """Holds back the first answer until it is let go: all of it, or what comes after its beginning."""

    def __init__(self, stack: Stack, streaming: pytest.MonkeyPatch | None = None) -> None:
        self.asked, self.again, self.go = threading.Event(), threading.Event(), threading.Event()
        self.streams = streaming is not None
        if streaming is not None:

            def chunk(handler: Any, data: bytes) -> None:
                with suppress(OSError):  # the worker has gone
                    _CHUNK(handler, data)
                    if not self.asked.is_set() and b"content" in data:
                        self.hold()

            streaming.setattr(scripted_model._Handler, "_chunk", chunk)
        stack.serve_model(on_turn=self.hook)

    def hook(self, name: str, index: int) -> None:
        if self.asked.is_set():
            self.again.set()
        elif not self.streams:
            self.hold()

    def hold(self) -> None:
        self.asked.set()
        self.go.wait(60)


async def test_an_idle_worker_ends_at_once(stack: Stack) -> None:
    port = free_port()
    worker = stack.start_worker(PERDURE_GRACE="20", PERDURE_HEALTH=str(port))
    await until(healthy(port, "/ready", 200), 120, "a ready worker")
    assert probe(port, "/live")[0] == 200
    assert probe(port, "/else")[0] == 404
    assert await end(worker, 20) < 20


@pytest.mark.all
async def test_a_short_model_request_finishes_and_is_recorded_when_its_worker_ends(
    stack: Stack, client: Client
) -> None:
    stack.script("short", call("list_files", path="."), say("done"))
    stack.bundle("short", ["list_files"])
    model = SlowModel(stack)
    worker = stack.start_worker(PERDURE_GRACE="30")
    run = await stack.start({"goal": "go on", "bundle": "short"})
    await until(model.asked.is_set, 120, "the first model request")
    worker.send_signal(signal.SIGTERM)
    model.go.set()
    await end(worker, 30)
    stack.start_worker()
    result = await client.get_workflow_handle(run).result()
    assert result["status"] == "completed"
    assert stack.requests("short") == {"0": 1, "1": 1}


@pytest.mark.all
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_long_model_request_is_handed_over_within_the_grace(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    stack.script("long", say("done with all that there was to do"))
    stack.bundle("long", [], model=[{"model": "long", "stream": True}])
    model = SlowModel(stack, monkeypatch if streaming else None)
    worker = stack.start_worker(PERDURE_GRACE="5")
    run = await stack.start({"goal": "go on", "bundle": "long"})
    await until(model.asked.is_set, 120, "the first model request")
    stack.start_worker()
    await up(stack, 1)
    assert await end(worker, 5) < 5 + SLACK
    await until(model.again.is_set, 15, "the other worker's request")
    model.go.set()
    result = await client.get_workflow_handle(run).result()
    assert (result["turns"], result["output"]) == (1, "done with all that there was to do")


@pytest.mark.parametrize("name", ["lasting", pytest.param("watching", marks=pytest.mark.all)])
async def test_a_long_tool_is_handed_over_and_acts_once(stack: Stack, client: Client, name: str) -> None:
    notes = stack.folder / "notes"
    stack.script("tool", call(name, seconds=300, notes=str(notes)), say("done"))
    stack.bundle("tool", [name], policy=[{"tool": "*", "decision": "allow"}])
    stack.serve_model()
    port = free_port()
    worker = stack.start_worker(**TOOLS, PERDURE_GRACE="5", PERDURE_HEALTH=str(port))
    run = await stack.start({"goal": "go on", "bundle": "tool"})
    await until(notes.exists, 120, "the tool")
    assert probe(port, "/ready")[1]["running"] == {f"tool {name}": 1}
    stack.start_worker(**TOOLS)
    await up(stack, 1)
    await end(worker, 5)
    ended = time.monotonic()
    await until(lambda: "begun 2" in notes.read_text(), 15, "the other worker's attempt")
    result = await client.get_workflow_handle(run).result()
    assert time.monotonic() - ended < 15, "the other worker goes on within seconds"
    assert result["status"] == "completed"
    assert notes.read_text().splitlines() == ["begun 1", "begun 2"] + (["acted"] if name == "lasting" else [])


@pytest.mark.all
async def test_an_effect_cut_off_by_a_worker_that_ends_is_looked_up_and_not_doubled(
    stack: Stack, client: Client
) -> None:
    notes = stack.folder / "notes"
    stack.script("once", call("sending", seconds=300, notes=str(notes)), say("done"))
    stack.bundle("once", ["sending"], policy=[{"tool": "*", "decision": "allow"}])
    stack.serve_model()
    worker = stack.start_worker(**TOOLS, PERDURE_GRACE="1")
    run = await stack.start({"goal": "go on", "bundle": "once"})
    await until(notes.exists, 120, "the tool")
    stack.start_worker(**TOOLS)
    await end(worker, 1)
    result = await client.get_workflow_handle(run).result()
    assert result["effects"][0]["status"] == "COMMITTED"
    assert notes.read_text().splitlines() == ["acted"]


@pytest.mark.all
async def test_a_second_signal_hands_over_at_once(stack: Stack, client: Client) -> None:
    notes = stack.folder / "notes"
    stack.script("hurry", call("lasting", seconds=300, notes=str(notes)), say("done"))
    stack.bundle("hurry", ["lasting"], policy=[{"tool": "*", "decision": "allow"}])
    stack.serve_model()
    worker = stack.start_worker(**TOOLS, PERDURE_GRACE="300")
    run = await stack.start({"goal": "go on", "bundle": "hurry"})
    await until(notes.exists, 120, "the tool")
    await end(worker, 10, signals=2)
    assert "handed over at the second signal: tool lasting" in log_of(stack, 0)
    stack.start_worker(**TOOLS)
    assert (await client.get_workflow_handle(run).result())["status"] == "completed"


async def test_a_worker_ends_within_its_grace_when_the_service_is_gone(tmp_path: Path) -> None:
    with EmbeddedTemporal(tmp_path / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
        stack = Stack(server.address, tmp_path / "stack", "service-gone")
        stack.script("gone", say("done"))
        stack.bundle("gone", [])
        model = SlowModel(stack)
        port = free_port()
        worker = stack.start_worker(PERDURE_GRACE="6", PERDURE_HEALTH=str(port))
        try:
            client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
            await stack.start({"goal": "go on", "bundle": "gone"})
            await until(model.asked.is_set, 120, "the model request")
            server.kill()
            await until(healthy(port, "/ready", 503), 60, "the health endpoint's word")
            assert "the Temporal service has not answered" in probe(port, "/ready")[1]["problems"][0]
            assert probe(port, "/live")[0] == 200, "a restart would not mend it"
            assert await end(worker, 6) < 6 + SLACK
            del client
        finally:
            model.go.set()
            stack.close()


@pytest.mark.all
async def test_a_worker_that_waits_for_the_service_ends_when_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes the connection, and never answers
        stack = Stack(f"127.0.0.1:{deaf.getsockname()[1]}", tmp_path / "stack", "no-service")
        worker = stack.start_worker(PERDURE_GRACE="5")
        deaf.settimeout(60)
        connection, _ = deaf.accept()
        try:
            await end(worker, 5)
            assert "stopped" in log_of(stack, 0) or "the time is over" in log_of(stack, 0)
        finally:
            connection.close()
            stack.close()


async def test_a_blocked_event_loop_is_named_and_holds_up_no_end(stack: Stack) -> None:
    stack.script("stall", call("stalling", seconds=60), say("done"))
    stack.bundle("stall", ["stalling"])
    stack.serve_model()
    port = free_port()
    worker = stack.start_worker(**TOOLS, PERDURE_GRACE="3", PERDURE_HEALTH=str(port))
    run = await stack.start({"goal": "go on", "bundle": "stall"})
    await until(lambda: "in _stall" in log_of(stack, 0), 120, "the watchdog's word")
    assert "life_tools.py" in log_of(stack, 0)
    await until(healthy(port, "/live", 503), 30, "the health endpoint's word")
    assert "_stall" in probe(port, "/live")[1]["problems"][0]
    assert await end(worker, 3) >= 2
    assert "the time is over" in log_of(stack, 0)
    await stack.temporal("workflow", "terminate", "-w", run)
