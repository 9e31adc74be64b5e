"""What the paths of the corpus are made with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from tests.integration.kit import Stack, pending

Play = Callable[[Stack, Client], Awaitable[None]]
PLAYS: dict[str, Play] = {}


def play(name: str) -> Callable[[Play], Play]:
    """Registers a run of the corpus."""

    def register(fn: Play) -> Play:
        PLAYS[name] = fn
        return fn

    return register


@asynccontextmanager
async def run(
    stack: Stack, client: Client, name: str, tools: list[str], *turns: Any, **more: Any
) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """A run of a bundle and a script of its own name, with a worker beside it until the end of the block."""
    stack.script(name, *turns)
    stack.bundle(name, tools)
    stack.serve_model()
    stack.runs.append(name)
    value = {"goal": f"the path {name}", "bundle": name, **more}
    async with stack.worker():
        yield await client.start_workflow("AgentRun", value, id=name, task_queue=stack.name)


async def decide(handle: WorkflowHandle[Any, Any], name: str, **body: Any) -> None:
    """Decides on the first open request."""
    request = (await pending(handle))[0]
    await handle.execute_update(name, {"code": request["code"], "by": "ann", **body})


async def waits(handle: WorkflowHandle[Any, Any], kind: str) -> bool:
    """Whether a run waits for that."""
    return kind in (await handle.query("status"))["waiting_on"]


async def session_is(handle: WorkflowHandle[Any, Any], number: int) -> bool:
    """Whether a run is in that session."""
    return bool((await handle.query("status"))["session"] == number)


async def fails(handle: WorkflowHandle[Any, Any]) -> None:
    """Waits for a run that has to fail."""
    try:
        await handle.result()
    except WorkflowFailureError:
        return
    raise AssertionError(f"{handle.id} did not fail")
