"""What a run costs: history, store and time, for each turn, as the run grows.

    python -m scripts.bench --turns 200           bytes and events of history, bytes of the store, each per turn
    python -m scripts.bench --turns 5000          milliseconds per turn at the start and at the end
    python -m scripts.bench --turns 1000 --cold   the worker is killed near the end: seconds until a new one goes on
    python -m scripts.bench --turns 1000 --fork   the run is forked near its end: seconds until the fork's first turn

Every turn is 500 B of model text and one call of a local read tool with a 2 KB result. Text and results are random
letters, so that no compression flatters the figures. The model answers at once, in a process of its own. It runs on a
server of its own in a temporary folder and needs nothing but this machine; the numbers are for comparing two versions
on one machine.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from activities.tools import tool
from scripts.embedded import EmbeddedTemporal
from workers.client import DATA_CONVERTER

TEXT, RESULT = 500, 2048


def letters(seed: str, size: int) -> str:
    """The same `size` letters for the same seed."""
    return "".join(random.Random(seed).choices(string.ascii_letters, k=size))  # noqa: S311


@tool(effect="read", local=True)
async def bench_read(number: int) -> str:
    """Read 2 KB."""
    return letters(f"result {number}", RESULT)


class Model(ThreadingHTTPServer):
    """Answers every request with one call, and after `turns` of them with the end."""

    daemon_threads = True

    def __init__(self, turns: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.turns, self.asked = turns, 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The worker is killed in the middle of a request: that is no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Model

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        number = self.server.asked
        message: dict[str, Any] = {"role": "assistant", "content": letters(f"text {number}", TEXT)}
        if number < self.server.turns:
            arguments = json.dumps({"number": number})
            call = {
                "id": f"c{number}",
                "type": "function",
                "function": {"name": "bench_read", "arguments": arguments},
            }
            message["tool_calls"] = [call]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if number < self.server.turns else "stop",
        }
        usage = {"prompt_tokens": 1000, "completion_tokens": 150, "total_tokens": 1150}
        body = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "bench",
            "choices": [choice],
            "usage": usage,
        }
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


class Bench:
    """One run on an installation of its own."""

    def __init__(self, folder: Path, server: EmbeddedTemporal, turns: int, small: bool) -> None:
        self.folder, self.turns = folder, turns
        self.server = server
        bundle = folder / "bundles" / "bench" / "1"
        bundle.mkdir(parents=True)
        context = "context_tokens = 1_000_000_000\n" if not small else "context_tokens = 60_000\n"
        (bundle / "bundle.toml").write_text(
            'tools = ["bench_read"]\n[[model]]\nmodel = "bench"\nstream = false\n'
            + context
            + f"[budget]\nturns = {turns + 10}\ntokens = 1_000_000_000_000\ncost_usd = 1e9\n"
        )
        (bundle / "prompt.md").write_text("You are measured.\n")
        self.model = Model(turns)
        threading.Thread(target=self.model.serve_forever, daemon=True).start()

    def start_worker(self) -> subprocess.Popen[bytes]:
        """A worker process."""
        environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": self.server.address,
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "PERDURE_STORE": (self.folder / "store").as_uri(),
            "PERDURE_WORKSPACES": str(self.folder / "workspaces"),
            "PERDURE_BUNDLES": str(self.folder / "bundles"),
            "PERDURE_TOOLS": "scripts.bench",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.model.server_port}/v1",
            "OPENAI_API_KEY": "not-needed",
        }
        command = [sys.executable, "-m", "scripts.cli", "worker"]
        log = (self.folder / "worker.log").open("ab")
        with log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    async def run(self, cold: bool, fork: bool) -> dict[str, Any]:
        """Runs it and gives the figures."""
        client = await Client.connect(self.server.address, data_converter=DATA_CONVERTER)
        worker = self.start_worker()
        try:
            value = {"goal": "be measured", "bundle": "bench"}
            handle = await client.start_workflow("AgentRun", value, id="bench", task_queue="perdure")
            figures: dict[str, Any] = {"turns": self.turns}
            if cold:
                await self._until_asked(self.turns - 20)
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
                asked = self.model.asked
                await asyncio.sleep(12)  # the heartbeat timeout, and the sticky queue's
                began = time.monotonic()
                starts = self._starts()
                worker = self.start_worker()
                while self._starts() == starts:  # noqa: ASYNC110, it is another process
                    await asyncio.sleep(0.01)
                ready = time.monotonic()
                await self._until_asked(asked + 1)
                figures["cold_start_seconds"] = round(time.monotonic() - began, 2)
                figures["of_which_process_start"] = round(ready - began, 2)
            result = await handle.result()
            assert result["status"] == "completed", result
            figures |= await costs(client, handle, self.turns)
            if fork:
                figures |= await self._fork(client)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        stored, objects = store_size(self.folder / "store" / "threads")
        payload = self.turns * (TEXT + RESULT)
        figures |= {"store_bytes": stored, "store_objects": objects, "store_times_payload": round(stored / payload, 2)}
        return figures

    async def _fork(self, client: Client) -> dict[str, Any]:
        """Seconds until the model is asked the fork's first turn, without and with an edit, and what the first of the
        two adds to the store."""
        threads, wanted = self.folder / "store" / "threads", {"workflow_id": "bench", "checkpoint": self.turns - 1}
        before, seen = disk_use(threads), store_size(threads)
        figures: dict[str, Any] = {"fork_first_turn_seconds": await self._fork_once(client, wanted)}
        added, objects = (now - then for now, then in zip(store_size(threads), seen, strict=True))
        figures |= {
            "fork_bytes_on_disk": disk_use(threads) - before,
            "fork_bytes_named_to_source": round(added / seen[0], 2),
            "fork_objects": objects,
        }
        edits = [{"append": "user", "content": "go on"}]
        return figures | {"fork_edited_first_turn_seconds": await self._fork_once(client, {**wanted, "edits": edits})}

    async def _fork_once(self, client: Client, wanted: dict[str, Any]) -> float:
        asked, began = self.model.asked, time.monotonic()
        name = f"bench-fork-{asked}"
        handle = await client.start_workflow("AgentRun", {"fork": wanted}, id=name, task_queue="perdure")
        await self._until_asked(asked + 1)
        seconds = time.monotonic() - began
        assert (await handle.result())["status"] == "completed"
        return round(seconds, 2)

    def _starts(self) -> int:
        return (self.folder / "worker.log").read_bytes().count(b"perdure worker: all")

    async def _until_asked(self, count: int) -> None:
        while self.model.asked < count:  # noqa: ASYNC110, the model is on a thread
            await asyncio.sleep(0.01)


async def costs(client: Client, handle: WorkflowHandle[Any, Any], turns: int) -> dict[str, Any]:
    """Bytes and events of history over all executions of the run, and milliseconds per turn at both ends."""
    size = events = executions = 0
    times: list[datetime] = []
    kinds: dict[str, list[int]] = {}
    async for execution in client.list_workflows(f"WorkflowId = '{handle.id}'"):
        executions += 1
        history = await client.get_workflow_handle(handle.id, run_id=execution.run_id).fetch_history()
        for event in history.events:
            events += 1
            size += event.ByteSize()
            kind = kinds.setdefault(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_"), [0, 0])
            kind[0] += 1
            kind[1] += event.ByteSize()
            attributes = event.activity_task_scheduled_event_attributes
            if attributes.activity_type.name == "model.turn":
                times.append(event.event_time.ToDatetime())
    times.sort()
    window = max(1, min(500, turns // 10))

    def pace(part: list[datetime]) -> float:
        return round((part[-1] - part[0]).total_seconds() * 1000 / (len(part) - 1), 1)

    skip = min(20, turns // 10)  # the first turns warm everything up
    start, end = pace(times[skip : skip + window + 1]), pace(times[-window - 1 :])
    return {
        "history_bytes_per_turn": round(size / turns),
        "history_events_per_turn": round(events / turns, 2),
        "executions": executions,
        "ms_per_turn_start": start,
        "ms_per_turn_end": end,
        "ms_ratio": round(end / start, 2),
        "by_event": {name: [count, round(total / turns)] for name, (count, total) in sorted(kinds.items())},
    }


def store_size(folder: Path) -> tuple[int, int]:
    """Bytes and number of the objects below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


def disk_use(folder: Path) -> int:
    """Bytes below a folder, each object once however many names it has."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({each.st_ino: each.st_size for each in stats}.values())


@contextmanager
def installation() -> Iterator[tuple[Path, EmbeddedTemporal]]:
    """A temporary folder and a server of its own."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with EmbeddedTemporal(folder / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
            yield folder, server


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description="What a run costs per turn.")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--cold", action="store_true", help="kill the worker 20 turns before the end")
    parser.add_argument("--fork", action="store_true", help="fork it at the end")
    parser.add_argument("--sessions", action="store_true", help="a context of 60,000 tokens, so that sessions hand off")
    options = parser.parse_args()
    with installation() as (folder, server):
        figures = asyncio.run(Bench(folder, server, options.turns, options.sessions).run(options.cold, options.fork))
    print(json.dumps(figures, indent=2))
    sys.stdout.flush()
    os._exit(0)  # the SDK's threads can crash the interpreter's own way out


if __name__ == "__main__":
    main()
