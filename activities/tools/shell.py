"""Running programs in the workspace."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from activities.tools.commands import run
from activities.tools.declaration import tool
from activities.tools.operation import Operation
from activities.tools.sandbox import ask_without_isolation, place_of

LONGEST = 3600
"""Seconds that one command may take."""
SPARE = 10.0
"""Seconds beyond that, for starting it and for ending what it left."""


def _seconds(arguments: dict[str, Any]) -> float:
    return float(arguments["timeout"]) + SPARE


@tool(effect="once", timeout=LONGEST + SPARE, deadline=_seconds, writes=True, guard=ask_without_isolation)
def shell(argv: list[str], timeout: Annotated[int, Field(ge=1, le=LONGEST)] = 60, *, op: Operation) -> str:
    """Run a program in the workspace and get what it prints. There is no shell in between: give the program and each
    argument apart, as ["pytest", "-q", "tests"]. For pipes and the like: ["sh", "-c", "…"]. It has no input, and what
    it leaves running is ended.

    Args:
        argv: the program and its arguments
        timeout: seconds after which it is killed
    """
    ran = run(op, argv, timeout, place=place_of(op.options))
    ended = f"killed: it had not ended after {timeout} s" if ran.code is None else f"exit code {ran.code}"
    return f"[{ended}{'' if ran.isolated else '; not isolated'}]\n{ran.said}"
