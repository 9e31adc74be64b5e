"""What a file held before an operation changed it, kept where the agent's tools cannot reach: beside the workspaces.

A record is on disk before the change is. So no record means that the change was surely not made, and a record tells
what the file held when it was about to be. `activities.earlier` brings records to other machines.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from activities.tools.confined import READ_LIMIT, folder, read, replace
from activities.tools.errors import ToolError
from activities.tools.operation import Operation

_ABSENT, _PRESENT = b"-", b"+"


@dataclass(frozen=True)
class Kept:
    """A record: the earlier content, None if there was no file."""

    content: bytes | None


def record(op: Operation, earlier: bytes | None) -> None:
    """Keeps the earlier content; None says that there was no file."""
    put(op.workspace, op.operation_id, Kept(earlier))


def recorded(op: Operation) -> bool:
    """Whether this operation came as far as to change something."""
    return find(op.workspace, op.operation_id) is not None


def earlier(op: Operation) -> bytes | None:
    """The earlier content, None if there was no file. Raises `ToolError` when nothing is on record."""
    found = find(op.workspace, op.operation_id)
    if found is None:
        raise ToolError("the earlier content of the file is not on record, so it cannot be restored")
    return found.content


def key(operation_id: str) -> str:
    """A file name for the operation."""
    return hashlib.sha256(operation_id.encode()).hexdigest()


def put(workspace: Path, operation_id: str, kept: Kept) -> None:
    """Writes a record."""
    content = _ABSENT if kept.content is None else _PRESENT + kept.content
    name = key(operation_id)
    with folder(_place(workspace), []) as at:
        replace(at, name, content, name + ".new", mode=0o600)


def find(workspace: Path, operation_id: str) -> Kept | None:
    """The record of an operation; None if this machine has none."""
    place = _place(workspace)
    if not place.is_dir():
        return None
    with folder(place, []) as at:
        data = read(at, key(operation_id), "the record of the earlier content", READ_LIMIT + 1)
    return None if data is None else Kept(data[1:] if data[:1] == _PRESENT else None)


def _place(workspace: Path) -> Path:
    return workspace.parent / ".perdure-undo" / workspace.name
