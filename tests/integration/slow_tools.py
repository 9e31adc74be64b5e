"""Tools that take their time, for tests of what happens meanwhile."""

import asyncio

from activities.tools import Operation, tool


@tool(effect="idempotent", timeout=20)
async def linger(seconds: float, *, op: Operation) -> str:
    """Take some seconds, and leave a line in the workspace.

    Args:
        seconds: how many
    """
    await asyncio.sleep(seconds)
    with (op.workspace / "lingered.txt").open("a") as file:
        file.write(f"{op.operation_id}\n")
    return "lingered"


@tool(effect="read", local=True)
async def ponder(seconds: float) -> str:
    """A quick read that is not quick."""
    await asyncio.sleep(seconds)
    return "thought about it"


@tool(effect="read")
async def bulk(size: int) -> str:
    """A lot of text."""
    return "x" * size
