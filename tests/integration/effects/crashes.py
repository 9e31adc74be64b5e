"""One cell of the crash matrix: a window, a class of tool, a SIGKILL, and what came of it."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tests.integration.effects.outside import Outside
from tests.integration.effects.tools import TIMEOUT
from tests.integration.kit import Stack, call, say, until

TOOLS = ("reads", "keyed", "looked", "reviewed", "skipped", "retried")
CRASHING = "tests.integration.effects.crashing_worker"

WINDOWS = {
    "before PREPARED": "before:prepared[.]json",
    "after PREPARED": "after:prepared[.]json",
    "during the effect": "",
    "after the effect": "before:outcome[.]json",
    "after COMMITTED": "after:outcome[.]json",
    "after it was reported": "",
}
CLASSES = {
    "reads": "`read`",
    "keyed": "`idempotent`",
    "looked": "`once` with `lookup`",
    "reviewed": "`once`, `review`",
    "skipped": "`once`, `skip`",
    "retried": "`once`, `retry`",
}


@dataclass(frozen=True)
class Cell:
    """What was seen: effects outside, the ledger's state, and seconds from the kill to the end or the review."""

    effects: int
    state: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.effects}, {self.state}"


@asynccontextmanager
async def effects_stack(stack: Stack, cells: Sequence[tuple[str, str]] = ()) -> AsyncIterator[Outside]:
    """The stack with the tools of this package, the service that they act on, and a bundle for each cell."""
    outside = Outside()
    stack.environment |= {
        "PERDURE_TOOLS": "tests.integration.effects.tools",
        "PERDURE_CREDENTIAL_OUTSIDE": outside.url,
    }
    for window, tool in cells:
        label = label_of(window, tool)
        bundle(stack, label, call(tool, label=label), say("done"))
    if cells:
        stack.serve_model()
    try:
        yield outside
    finally:
        outside.close()


def bundle(stack: Stack, name: str, *turns: dict[str, Any], tools: Sequence[str] = TOOLS, **tables: Any) -> None:
    """A bundle that may use every tool without asking."""
    stack.script(name, *turns)
    tables.setdefault("policy", [{"tool": "*", "decision": "allow"}])
    stack.bundle(name, list(tools), **tables)


def label_of(window: str, tool: str) -> str:
    """What a cell's bundle, run and effect are called."""
    return f"{tool}-{re.sub('[^a-z]+', '-', window.lower())}"


async def cell(stack: Stack, client: Client, outside: Outside, window: str, tool: str) -> Cell:
    """Two workers, one kill, and the end. See `effects_stack`."""
    label = label_of(window, tool)
    queue = f"{stack.name}-{label}"
    mark = stack.folder / f"mark-{label}"
    crash = {"CRASH_AT": WINDOWS[window] or "never:x", "CRASH_MARK": str(mark), "PERDURE_TASK_QUEUE": queue}
    if window == "during the effect":
        outside.kill_during.add(label)
    workers = [stack.start_worker(module=CRASHING, **crash) for _ in range(2)]
    try:
        run = await start(stack, queue, label)
        handle = client.get_workflow_handle(run)
        if window == "after it was reported":
            await until(lambda: _effect(handle, "COMMITTED") if tool != "reads" else outside.effects[label], 300)
            outside.killed_at[label] = time.time()
            for worker in workers:
                worker.kill()
                worker.wait()
            workers.append(stack.start_worker(module=CRASHING, **crash))
        found: Cell = await until(lambda: _settled(handle, outside, label, mark), 400, f"the end of {label}")
        return found
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()


async def start(stack: Stack, queue: str, label: str) -> str:
    """Starts a run of the bundle that is named like the label, on a queue of its own."""
    run = f"{stack.name[:40]}-{label}"
    given = json.dumps({"goal": "act", "bundle": label})
    done = await stack.temporal(
        *("workflow", "start", "--type", "AgentRun", "--task-queue", queue, "--workflow-id", run, "--input", given)
    )
    assert done.returncode == 0, done.stderr
    stack.runs.append(run)
    return run


def _marked(mark: Path) -> float | None:
    return float(mark.read_text() or 0) if mark.exists() else None


async def _effect(handle: WorkflowHandle[Any, Any], state: str) -> bool:
    try:
        return any(effect["status"] == state for effect in await handle.query("effects"))
    except RPCError:  # no worker answers just now
        return False


async def _settled(handle: WorkflowHandle[Any, Any], outside: Outside, label: str, mark: Path) -> Cell | None:
    """The cell, once the run has ended or asks a person, and somebody has died."""
    killed = outside.killed_at.get(label) or _marked(mark)
    if killed is None:
        return None
    try:
        status = await asyncio.wait_for(handle.query("status"), 5)
        effects = await asyncio.wait_for(handle.query("effects"), 5)
    except Exception:  # noqa: BLE001 - no worker is there to answer just now
        return None
    if status["status"] != "completed" and "review" not in status["waiting_on"]:
        return None
    if not effects:
        return Cell(outside.effects[label], "-", time.time() - killed)
    ended = effects[0]["committed_at"]
    seen = datetime.fromisoformat(ended).timestamp() if ended else time.time()
    return Cell(outside.effects[label], effects[0]["status"], seen - killed)


LEASE = TIMEOUT + 5
