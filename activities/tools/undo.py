"""What a file held before an operation changed it, kept where the agent's tools cannot reach: beside the workspaces.

A record is on disk before the change is. So no record means that the change was surely not made, and a record tells
what the file held when it was about to be.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from activities.tools.confined import READ_LIMIT, folder, read, replace
from activities.tools.errors import ToolError
from activities.tools.operation import Operation

_ABSENT, _PRESENT = b"-", b"+"


def record(op: Operation, earlier: bytes | None) -> None:
    """Keeps the earlier content; None says that there was no file."""
    content = _ABSENT if earlier is None else _PRESENT + earlier
    with folder(_place(op), []) as at:
        replace(at, key(op), content, key(op) + ".new", mode=0o600)


def recorded(op: Operation) -> bool:
    """Whether this operation came as far as to change something."""
    return _read(op) is not None


def earlier(op: Operation) -> bytes | None:
    """The earlier content, None if there was no file. Raises `ToolError` when nothing is on record."""
    content = _read(op)
    if content is None:
        raise ToolError("the earlier content of the file is not on record here, so it cannot be restored")
    return content[1:] if content[:1] == _PRESENT else None


def key(op: Operation) -> str:
    """A file name for the operation."""
    return hashlib.sha256(op.operation_id.encode()).hexdigest()


def _read(op: Operation) -> bytes | None:
    with folder(_place(op), []) as at:
        return read(at, key(op), "the record of the earlier content", READ_LIMIT + 1)


def _place(op: Operation) -> Path:
    return op.workspace.parent / ".perdure-undo" / op.workspace.name
