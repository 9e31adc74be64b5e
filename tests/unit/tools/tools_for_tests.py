"""Tools at module level, which a process of its own can import."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from activities.tools import Operation, ToolError, tool


class OddError(Exception):
    """An exception that does not survive pickling by itself."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@tool(effect="once")
def act(how: str, *, op: Operation) -> object:
    """Acts in one way or another."""
    if how == "refuse":
        raise ToolError("not today")
    if how == "odd":
        raise OddError("salt", "pepper")
    if how == "die":
        os._exit(7)
    if how == "exit":
        sys.exit(3)
    if how == "unpicklable":
        return lambda: None
    if how == "print":
        os.write(1, b"noise on the standard output\n")
        return "quiet"
    if how == "secret":
        return {
            "secret": asyncio.run(op.credential("crm")),
            "environment": [name for name in os.environ if name.startswith("PERDURE_CREDENTIAL_")],
        }
    return os.getpid()


@tool(effect="once")
def linger(path: str) -> None:
    """Starts a process that writes into a file for ever, and waits."""
    code = "import sys, time\nwhile True:\n open(sys.argv[1], 'a').write('x'); time.sleep(0.02)"
    subprocess.Popen([sys.executable, "-c", code, path])
    while not Path(path).exists():
        time.sleep(0.01)
    Path(path + ".started").touch()
    time.sleep(60)


@tool(effect="once")
def add(one: int, two: int = 2) -> int:
    """Adds."""
    return one + two


@add.compensate
def subtract(op: Operation, result: int) -> int:
    return os.getpid()
