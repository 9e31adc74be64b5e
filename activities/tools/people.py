"""Asking a person."""

from __future__ import annotations

from typing import Any

from activities.tools.declaration import tool
from activities.tools.errors import ToolCrash


@tool(effect="read", question=True)
async def ask_human(question: str, choices: list[str] | None = None, schema: dict[str, Any] | None = None) -> str:
    """Ask a person, and wait for the answer, however long it takes.

    Args:
        question: what to ask, with all that is needed to answer it
        choices: the possible answers, if there are only some
        schema: a JSON Schema that the answer must fit, if it is more than text
    """
    raise ToolCrash("ask_human is put to a person by the run; it is never executed")
