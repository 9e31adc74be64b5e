"""Facts about an attempt that its result does not say, for logs, traces and measures; free where nobody listens."""

from contextvars import ContextVar
from typing import Any

NOTES: ContextVar[dict[str, Any] | None] = ContextVar("perdure_notes", default=None)
"""Where the worker wants the facts of the attempt that runs; None: nowhere."""


def note(**facts: Any) -> None:
    """Notes facts, for example `recorded=True` where a step was found done and so was not done again."""
    notes = NOTES.get()
    if notes is not None:
        notes.update(facts)
