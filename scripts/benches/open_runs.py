"""How long `perdure runs` takes with many open runs: such that nobody serves, then such that wait for an approval."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from temporalio.client import Client

from scripts.benches.rig import Ours, store_size
from scripts.benches.rows import Rows
from scripts.embedded import EmbeddedTemporal

AT_ONCE = 100
TIMES = 3


async def open_runs(folder: Path, temporal: EmbeddedTemporal, rows: Rows, count: int) -> None:
    """Opens so many runs, and times the command."""
    with Ours(folder, temporal, "open") as rig:
        client, gate = await rig.client(), asyncio.Semaphore(AT_ONCE)

        async def start(number: int) -> None:
            async with gate:
                await rig.start(client, f"{number:05d}", 1, "bench_ask")

        await asyncio.gather(*(start(number) for number in range(count)))
        await _until(client, "ExecutionStatus = 'Running'", count)
        await _time(rig, rows, "no worker", count)
        with rig.worker():
            await _until(client, "PerdureWaitingOn = 'approval'", count)
            await _time(rig, rows, "approval", count)
        await _weigh(rig, client, rows, count)


async def _weigh(rig: Ours, client: Client, rows: Rows, count: int) -> None:
    """What a waiting run holds: history, store, and the server's database with its visibility."""
    described = await client.get_workflow_handle(f"{rig.name}-00000").describe()
    info = described.raw_description.workflow_execution_info
    stored, objects = rig.stored("00000")
    rows.add(
        "waiting run",
        open=count,
        history_bytes=info.history_size_bytes,
        history_events=info.history_length,
        store_bytes=stored,
        store_objects=objects,
        database_bytes=round(store_size(rig.temporal.folder)[0] / count),
    )


async def _until(client: Client, query: str, count: int) -> None:
    """Until visibility shows them."""
    while (await client.count_workflows(query)).count < count:  # noqa: ASYNC110, it is the server
        await asyncio.sleep(0.2)


async def _time(rig: Ours, rows: Rows, waiting: str, count: int) -> None:
    taken = []
    listed: list[dict[str, Any]] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.cli", "runs", "--json"), env=rig.environment, stdout=subprocess.PIPE
        )
        out, _ = await process.communicate()
        taken.append(round(time.perf_counter() - began, 2))
        listed = json.loads(out)
    kinds = sorted({each["waits_for"] for each in listed})
    rows.add("runs", open=count, waiting=waiting, listed=len(listed), waits_for=kinds, seconds=taken)
