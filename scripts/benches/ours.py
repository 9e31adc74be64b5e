"""One run of ours with all its figures, and the start of a cold worker near its end."""

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from temporalio.worker import Replayer

from activities.store import open_store
from scripts.benches.forks import fork
from scripts.benches.measures import histories, pace, replay_cpu, weigh
from scripts.benches.rig import LARGE, SMALL, Ours, Process, Where, completed, cpu_of
from scripts.benches.workload import RESULT, TEXT
from scripts.embedded import EmbeddedTemporal
from workers.client import data_converter
from workers.worker import WORKFLOWS, PlainRunner

SILENCE = 12.0
"""Seconds after which the server has given up a killed worker: the heartbeat's limit, and the sticky queue's."""
LEFT = 20
"""Turns that are left when the worker is killed."""


async def measure(folder: Path, temporal: EmbeddedTemporal, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run."""
    turns = options.turns
    context = SMALL if options.sessions else LARGE
    where: Where = options.model
    if options.cold or options.fork:
        where = "http"  # only there the requests can be counted
    with Ours(folder, temporal, where=where, context=context) as rig:
        client = await rig.client()
        worker, more = rig.worker(), dict[str, Any]()
        try:
            cpu, served, began = worker.cpu(), cpu_of(temporal.pid), time.perf_counter()
            handle = await rig.start(client, "run", turns, options.tool)
            if options.cold:
                worker, more = await _killed(rig, worker, turns)
                cpu = 0.0
            result = await completed(handle)
            seconds, spent = time.perf_counter() - began, worker.cpu() - cpu
            served = cpu_of(temporal.pid) - served
            stored, objects = rig.stored("run")
            if options.fork:
                more |= await fork(rig, client, turns)
        finally:
            worker.kill()
        found = await histories(client, handle)
        converter = data_converter(open_store(rig.environment["PERDURE_STORE"]), worker=True)
        replayer = Replayer(workflows=WORKFLOWS, data_converter=converter, workflow_runner=PlainRunner())
        return {
            "turns": turns,
            "tool": options.tool,
            "model": where,
            **more,
            "sessions": result["sessions"],
            "ms_per_turn": round(seconds * 1000 / turns, 2),
            "worker_cpu_ms_per_turn": round(spent * 1000 / turns, 2),
            "server_cpu_ms_per_turn": round(served * 1000 / turns, 2),
            **pace(found, turns),
            **weigh(found, turns),
            "replay_cpu_seconds": await replay_cpu(found, replayer),
            "store_bytes": stored,
            "store_objects": objects,
            "store_times_payload": round(stored / (turns * (TEXT + RESULT)), 2),
        }


async def _killed(rig: Ours, worker: Process, turns: int) -> tuple[Process, dict[str, Any]]:
    """Kills the worker near the end; a new one, and what its start took until the model was asked again."""
    assert rig.model is not None
    while rig.model.asked < max(1, turns - LEFT):  # noqa: ASYNC110, the model is on a thread
        await asyncio.sleep(0.01)
    worker.kill()
    asked = rig.model.asked
    await asyncio.sleep(SILENCE)
    began = time.monotonic()
    fresh = rig.worker()
    ready = time.monotonic()
    while rig.model.asked <= asked:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return fresh, {
        "cold_start_seconds": round(time.monotonic() - began, 2),
        "of_which_process_start": round(ready - began, 2),
    }
