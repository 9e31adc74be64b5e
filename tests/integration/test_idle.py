"""Waiting is free."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, call, pending, say, until

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@pytest.mark.all
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processor time from /proc")
async def test_a_hundred_waiting_runs_hold_no_activity_and_no_processor(stack: Stack, client: Client) -> None:
    stack.script("idle", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("idle", ["write_file"])
    stack.serve_model()
    worker = stack.start_worker()
    value = {"goal": "wait", "bundle": "idle"}
    start = partial(client.start_workflow, "AgentRun", value, task_queue=stack.name)
    handles = [await start(id=f"{stack.name}-{number}") for number in range(100)]
    stack.runs.append(handles[0].id)
    asked = {handle.id: (await pending(handle, seconds=120))[0]["code"] for handle in handles}
    before = cpu_seconds(worker.pid)
    await asyncio.sleep(20)
    used = cpu_seconds(worker.pid) - before
    for handle in handles:
        assert not (await handle.describe()).raw_description.pending_activities
    sys.stderr.write(f"\n100 waiting runs: {used / 20:.2%} of one processor\n")
    assert before > 0
    assert used < 2, f"{used:.2f} s of processor time in 20 s of waiting"
    for handle in handles:
        await handle.execute_update("approve", {"code": asked[handle.id], "by": "ann"})

    async def all_done() -> bool:
        return all([(await handle.describe()).status.name == "COMPLETED" for handle in handles])  # type: ignore[union-attr]

    await until(all_done, 120, "the end of all runs")
