"""What a fork costs: seconds until its first turn asks the model, and what it adds to the store."""

import asyncio
import time
from pathlib import Path
from typing import Any

from temporalio.client import Client

from scripts.benches.rig import Ours, completed, store_size

EDITS = {"added": {"append": "user", "content": "go on"}, "rewritten": {"replace": 1, "content": "other words"}}


async def fork(rig: Ours, client: Client, turns: int) -> dict[str, Any]:
    """Forks the run from the turn before its last: as it is, with something added at the end, and with other words in
    its second message, so that a context of its own is written. The model is one over HTTP."""
    threads = rig.folder / "store" / "threads"
    wanted = {"workflow_id": f"{rig.name}-run", "checkpoint": turns - 1}
    before, (size, objects) = disk_use(threads), store_size(threads)
    figures: dict[str, Any] = {"fork_first_turn_seconds": await _once(rig, client, wanted)}
    after = store_size(threads)
    figures |= {
        "fork_bytes_on_disk": disk_use(threads) - before,
        "fork_bytes_named_to_source": round((after[0] - size) / size, 2),
        "fork_objects": after[1] - objects,
    }
    for name, edit in EDITS.items():
        figures[f"fork_{name}_first_turn_seconds"] = await _once(rig, client, {**wanted, "edits": [edit]})
    return figures


async def _once(rig: Ours, client: Client, wanted: dict[str, Any]) -> float:
    assert rig.model is not None
    asked, began = rig.model.asked, time.monotonic()
    value = {"fork": wanted}
    handle = await client.start_workflow("AgentRun", value, id=f"{rig.name}-fork-{asked}", task_queue=rig.name)
    while rig.model.asked <= asked:  # noqa: ASYNC110, the model is on a thread
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - began
    await completed(handle)
    return round(seconds, 2)


def disk_use(folder: Path) -> int:
    """Bytes below a folder, each object once however many names it has."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({each.st_ino: each.st_size for each in stats}.values())
