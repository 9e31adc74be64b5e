"""What the ledger costs: an effect that takes no time, against a read that takes none, by turns in one process."""

import asyncio
import secrets
import time
from pathlib import Path
from statistics import median

from activities.store import Store, open_store
from scripts.benches.counting import Counted, counting_worker
from scripts.benches.rig import Ours, completed
from scripts.benches.rows import Rows
from scripts.embedded import EmbeddedTemporal

CHUNK = 20
"""Turns of one run; runs of the two kinds take turns."""
TOOLS = ("bench_touch", "bench_look", "bench_read")


async def effects(folder: Path, temporal: EmbeddedTemporal, rows: Rows, turns: int) -> None:
    """Puts and milliseconds of each kind of activity, and of a bare put beside them."""
    counted = Counted()
    chunk = min(CHUNK, turns)
    with Ours(folder, temporal, "effects") as rig:
        store = open_store(rig.environment["PERDURE_STORE"])
        puts: list[float] = []
        async with counting_worker(rig, counted) as client:
            for number in range(max(1, turns // chunk)):
                for tool in TOOLS:
                    await completed(await rig.start(client, f"{tool}-{number}", chunk, tool))
                puts += [await _put(store) for _ in range(chunk)]
        found = counted.summary()
    effect, read = found["tool.run bench_touch"], found["tool.run bench_look"]
    rows.add(
        "effects",
        turns=turns,
        effect_ms=effect["median_ms"],
        read_ms=read["median_ms"],
        ledger_ms=round(effect["median_ms"] - read["median_ms"], 2),
        ledger_puts=round(effect.get("put_new", 0) + effect.get("put", 0) - read.get("put_new", 0), 2),
        bare_put_ms=round(median(puts), 2),
        activities=found,
    )


async def _put(store: Store) -> float:
    began = time.perf_counter()
    await store.put_new(f"bare/{secrets.token_hex(8)}", b"x" * 1000)
    taken = (time.perf_counter() - began) * 1000
    await asyncio.sleep(0)
    return taken
