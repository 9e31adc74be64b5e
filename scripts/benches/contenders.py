"""The contenders of this Python: ours in three ways, and the floor. Each measurement has a worker of its own."""

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer

from activities.store import open_store
from scripts.benches import floor
from scripts.benches.measures import histories, pace, replay_cpu, weigh
from scripts.benches.rig import LARGE, SMALL, Ours, Process, Where, child_environment, completed, cpu_of
from scripts.benches.workload import RESULT
from scripts.embedded import EmbeddedTemporal
from workers.client import data_converter
from workers.worker import WORKFLOWS, PlainRunner

Row = dict[str, Any]
SESSIONS_FROM = 2000
"""Turns from which our runs have a context of 60,000 tokens and hand sessions over: no model takes a longer one."""
BIG = 3_000_000


class Contender(Protocol):
    """Something that runs the workload. Rows have `status` ("ok", or what became of it) and what was measured."""

    name: str

    async def one(self, turns: int) -> Row:
        """One run by itself."""

    async def many(self, runs: int, turns: int) -> Row:
        """Runs at once, on one worker."""

    async def crash(self) -> Row | None:
        """A run whose worker dies right after the effect of its tool. None: it has no effects."""

    async def large(self) -> Row | None:
        """Two turns with results of 3 MB."""


class Native(ABC):
    """What ours and the floor have in common."""

    activity: str

    def __init__(self, name: str, folder: Path, temporal: EmbeddedTemporal) -> None:
        self.name, self.folder, self.temporal = name, folder, temporal
        self._made = 0

    @abstractmethod
    def worker(self) -> Process:
        """A worker process, ready."""

    @abstractmethod
    async def client(self) -> Client:
        """A client."""

    @abstractmethod
    async def start(self, client: Client, run: str, turns: int) -> WorkflowHandle[Any, Any]:
        """Starts a run."""

    @abstractmethod
    def replayer(self) -> Replayer:
        """What replays its histories."""

    def fresh(self) -> str:
        """A name for one more run."""
        self._made += 1
        return f"{self._made:05d}"

    async def ended(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Waits for the end of a run."""
        await handle.result()

    async def one(self, turns: int) -> Row:
        """One run by itself, after one of a single turn that warms the worker up."""
        client = await self.client()
        with self.worker() as worker:
            await self.ended(await self.start(client, self.fresh(), 1))
            cpu, served, began = worker.cpu(), cpu_of(self.temporal.pid), time.perf_counter()
            run = self.fresh()
            handle = await self.start(client, run, turns)
            await self.ended(handle)
            seconds = time.perf_counter() - began
            spent, served = worker.cpu() - cpu, cpu_of(self.temporal.pid) - served
        found = await histories(client, handle)
        return {
            "status": "ok",
            "seconds": round(seconds, 3),
            "ms_per_turn": round(seconds * 1000 / turns, 2),
            "worker_cpu_seconds": round(spent, 2),
            "server_cpu_seconds": round(served, 2),
            **weigh(found, turns),
            **pace(found, turns, self.activity),
            "replay_cpu_seconds": await replay_cpu(found, self.replayer()),
            **self.more(run, turns),
        }

    def more(self, run: str, turns: int) -> Row:
        """What else there is to say of a run."""
        return {}

    async def many(self, runs: int, turns: int) -> Row:
        """Runs at once."""
        client = await self.client()
        with self.worker() as worker:
            await self.ended(await self.start(client, self.fresh(), 1))
            cpu, served, began = worker.cpu(), cpu_of(self.temporal.pid), time.perf_counter()

            async def run() -> None:
                await self.ended(await self.start(client, self.fresh(), turns))

            await asyncio.gather(*(run() for _ in range(runs)))
            seconds = time.perf_counter() - began
            return many_row(runs, seconds, worker.cpu() - cpu, cpu_of(self.temporal.pid) - served)

    async def crash(self) -> Row | None:
        """No effects."""
        return None

    async def large(self) -> Row | None:
        """Tiny payloads only."""
        return None


def many_row(runs: int, seconds: float, cpu: float, served: float) -> Row:
    """What is said of runs at once."""
    return {
        "status": "ok",
        "seconds": round(seconds, 2),
        "runs_per_second": round(runs / seconds, 2),
        "worker_cpu_seconds": round(cpu, 2),
        "server_cpu_seconds": round(served, 2),
    }


class Floor(Native):
    """See `scripts.benches.floor`."""

    activity = "floor.turn"

    def worker(self) -> Process:
        """A worker process, ready."""
        log = self.folder / f"floor-{self.fresh()}.log"
        process = Process(
            [sys.executable, "-m", "scripts.benches.floor", self.temporal.address], log, child_environment(self.folder)
        )
        while floor.READY not in log.read_bytes():
            if process.over:
                raise SystemExit(f"bench: the floor's worker did not start: {log.read_text()[-2000:]}")
            time.sleep(0.01)
        return process

    async def client(self) -> Client:
        """A plain client."""
        return await Client.connect(self.temporal.address)

    async def start(self, client: Client, run: str, turns: int) -> WorkflowHandle[Any, Any]:
        """Starts a run."""
        return await client.start_workflow(floor.Floor.run, turns, id=f"{self.name}-{run}", task_queue=floor.QUEUE)

    def replayer(self) -> Replayer:
        """What replays its histories."""
        return Replayer(workflows=[floor.Floor])


class Perdure(Native):
    """Ours, through its own command, bundle and tools."""

    activity = "model.turn"

    def __init__(self, name: str, folder: Path, temporal: EmbeddedTemporal, tool: str, where: Where) -> None:
        super().__init__(name, folder, temporal)
        self.tool, self.where = tool, where
        self.rig = Ours(folder, temporal, name, where=where)
        self.rig.__enter__()

    async def one(self, turns: int) -> Row:
        """One run; a very long one with sessions."""
        if turns < SESSIONS_FROM or self.rig.context == SMALL:
            return await super().one(turns)
        long = Perdure(f"{self.name}-sessions-{self.fresh()}", self.folder, self.temporal, self.tool, self.where)
        long.rig.use_context(SMALL)
        return await long.one(turns)

    def worker(self) -> Process:
        """A worker process, ready."""
        return self.rig.worker()

    async def client(self) -> Client:
        """A client of ours."""
        return await self.rig.client()

    async def start(self, client: Client, run: str, turns: int) -> WorkflowHandle[Any, Any]:
        """Starts a run."""
        return await self.rig.start(client, run, turns, self.tool)

    async def ended(self, handle: WorkflowHandle[Any, Any]) -> None:
        """A run must complete."""
        await completed(handle)

    def replayer(self) -> Replayer:
        """As `perdure replay` has it."""
        converter = data_converter(open_store(self.rig.environment["PERDURE_STORE"]), worker=True)
        return Replayer(workflows=WORKFLOWS, data_converter=converter, workflow_runner=PlainRunner())

    def more(self, run: str, turns: int) -> Row:
        """What lies in the store."""
        stored, objects = self.rig.stored(run)
        return {
            "store_bytes": stored,
            "store_objects": objects,
            "store_times_payload": round(stored / (turns * (500 + RESULT)), 2),
            "sessions": self.rig.context != LARGE,
        }

    async def crash(self) -> Row | None:
        """The other side honours the idempotency key, as the tool declares."""
        client, began = await self.client(), time.perf_counter()
        for each in (self.rig.folder / "outside").rglob("*"):
            if each.is_file():
                each.unlink()
        with self.rig.worker() as worker:
            handle = await self.rig.start(client, self.fresh(), 1, "bench_crash")
            while not worker.over:  # noqa: ASYNC110, it is another process
                await asyncio.sleep(0.01)
        died = time.perf_counter()
        with self.rig.worker():
            await completed(handle)
        ended, outside = time.perf_counter(), self.rig.folder / "outside"
        return {
            "status": "ok",
            "effects": len(list((outside / "effects").iterdir())),
            "requests": len((outside / "requests").read_text().splitlines()),
            "seconds": round(ended - began, 1),
            "recovery_seconds": round(ended - died, 1),
        }

    async def large(self) -> Row | None:
        """Two turns with results of 3 MB."""
        client, began = await self.client(), time.perf_counter()
        with self.rig.worker():
            handle = await self.rig.start(client, self.fresh(), 2, "bench_look", BIG)
            await completed(handle)
        found = weigh(await histories(client, handle), 2)
        kept = {name: found[name] for name in ("history_bytes", "history_events")}
        return {"status": "ok", "seconds": round(time.perf_counter() - began, 2), **kept}


def native(folder: Path, temporal: EmbeddedTemporal) -> list[Native]:
    """All contenders of this Python."""
    return [
        Floor("floor", folder, temporal),
        Perdure("perdure", folder, temporal, "bench_read", "inside"),
        Perdure("perdure-activity", folder, temporal, "bench_look", "inside"),
        Perdure("perdure-http", folder, temporal, "bench_read", "http"),
    ]
