"""What telemetry costs: the same runs without it, and with collectors that are good, hang, refuse or flood errors."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benches.rig import Ours, completed
from scripts.benches.rows import Rows
from scripts.embedded import EmbeddedTemporal

MOODS = ("none", "good", "hangs", "refuses", "floods")
FLOOD = b"the collector is out of order\n" * 10_000


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP and reads nothing of it. `hangs`: never answers; `floods`: 503, with 300 KB of complaint."""

    daemon_threads = True

    def __init__(self, mood: str) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.mood, self.asked, self.over = mood, 0, threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that goes away in the middle of a request is no error here."""


class _Take(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        if self.server.mood == "hangs":
            self.server.over.wait()
        body = FLOOD if self.server.mood == "floods" else b""
        self.send_response(503 if body else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


@contextmanager
def collector(mood: str) -> Iterator[dict[str, str]]:
    """The variables that send telemetry to a collector of that mood."""
    if mood == "none":
        yield {}
    elif mood == "refuses":
        with socket.socket() as bound:  # a port that nobody listens on, and that nobody else gets
            bound.bind(("127.0.0.1", 0))
            yield _variables(bound.getsockname()[1])
    else:
        with Collector(mood) as server:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
            yield _variables(server.server_port)
            server.over.set()
            server.shutdown()


def _variables(port: int) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_METRIC_EXPORT_INTERVAL": "5000"}


async def telemetry(
    folder: Path, temporal: EmbeddedTemporal, rows: Rows, runs: int, turns: int, rounds: int
) -> dict[str, float]:
    """Seconds and CPU seconds of each round, and the medians of the ratios within a round."""
    taken: dict[str, list[tuple[float, float]]] = {mood: [] for mood in MOODS}
    with ExitStack() as stack:
        rigs = {mood: stack.enter_context(_rig(folder, temporal, mood)) for mood in MOODS}
        for number in range(rounds):
            for mood in MOODS if number % 2 == 0 else MOODS[::-1]:
                taken[mood].append(await _timed(rigs[mood], number, runs, turns))
                seconds, cpu = taken[mood][-1]
                rows.add("telemetry", mood=mood, round=number, runs=runs, turns=turns, seconds=seconds, cpu=cpu)
    ratios = {mood: _ratio(taken[mood], taken["none"], 0) for mood in MOODS}
    cpu_ratios = {mood: _ratio(taken[mood], taken["none"], 1) for mood in MOODS}
    rows.add("telemetry ratios", rounds=rounds, seconds=ratios, cpu=cpu_ratios)
    return ratios


@contextmanager
def _rig(folder: Path, temporal: EmbeddedTemporal, mood: str) -> Iterator[Ours]:
    with collector(mood) as variables, Ours(folder, temporal, f"telemetry-{mood}", environment=variables) as rig:
        yield rig


async def _timed(rig: Ours, number: int, runs: int, turns: int) -> tuple[float, float]:
    client = await rig.client()
    with rig.worker() as worker:
        await completed(await rig.start(client, f"{number}-warm", 2))
        cpu, began = worker.cpu(), time.perf_counter()
        handles = [await rig.start(client, f"{number}-{each}", turns) for each in range(runs)]
        await asyncio.gather(*(completed(handle) for handle in handles))
        return round(time.perf_counter() - began, 3), round(worker.cpu() - cpu, 2)


def _ratio(these: list[tuple[float, float]], those: list[tuple[float, float]], which: int) -> float:
    return round(median(a[which] / max(b[which], 0.01) for a, b in zip(these, those, strict=True)), 3)
