"""Tools that take their time, for worker processes of the tests."""

import asyncio
import time
from pathlib import Path
from typing import Any

from activities.tools import Operation, tool


def _note(path: str, word: str) -> None:
    with Path(path).open("a") as file:
        file.write(word + "\n")


@tool(effect="idempotent", timeout=300)
def lasting(seconds: float, notes: str, *, op: Operation) -> str:
    """Works in a process of its own; notes when it begins and when it has acted."""
    _note(notes, f"begun {op.attempt}")
    time.sleep(seconds if op.attempt == 1 else 0)
    _note(notes, "acted")
    return "acted"


@tool(effect="read", timeout=300)
async def watching(seconds: float, notes: str, *, op: Operation) -> str:
    """Watches on the loop of the async tools."""
    _note(notes, f"begun {op.attempt}")
    await asyncio.sleep(seconds if op.attempt == 1 else 0)
    return "seen"


@tool(effect="once", timeout=15)
def sending(seconds: float, notes: str, *, op: Operation) -> str:
    """Acts first and then takes long to say so: whoever only sees the attempt end cannot know."""
    _note(notes, "acted")
    time.sleep(seconds)
    return "acted"


@sending.lookup
def find_sent(op: Operation) -> str | None:
    """Whether it was sent."""
    notes = Path(str(op.arguments["notes"]))
    return "acted" if notes.exists() else None


def _stall(arguments: dict[str, Any], options: dict[str, Any]) -> str | None:
    time.sleep(arguments["seconds"])
    return None


@tool(effect="read", guard=_stall)
def stalling(seconds: float) -> str:
    """Its guard blocks the worker's own event loop."""
    return "ok"


@tool(effect="read", timeout=60)
def held(notes: str, label: str) -> str:
    """Notes that it has begun, waits until it is let go, and notes its end."""
    _note(notes, f"begun {label}")
    while not Path(f"{notes}.go").exists():
        time.sleep(0.05)
    _note(notes, f"ended {label}")
    return "seen"
