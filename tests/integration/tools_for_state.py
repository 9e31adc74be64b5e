"""Tools for the tests of state, and a worker that dies where a test says.

With CRASH_AT=<stage>:<part of a key> and CRASH_FLAG=<file> a worker process that loads this module kills itself, once,
at that stage of writing the first such key to a local store. CRASH_EVERY shortens the segments. The stage `session` is
another one: the first turn of a session that follows a handoff has been given out, and has done nothing yet.
"""

import os
import signal
from pathlib import Path
from typing import Any

import activities.segments
import activities.turn
from activities.store import LocalStore
from activities.tools import tool


@tool(effect="read", timeout=30)
async def large_read(size: int) -> str:
    """A long text."""
    return "0123456789abcdef" * (size // 16)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(stage: str, wanted: str, flag: Path) -> None:
    write = LocalStore._write

    def dying(self: LocalStore, key: str, data: bytes, new: bool) -> bool:
        if wanted not in key or flag.exists():
            return write(self, key, data, new)
        flag.touch()
        if stage == "before":
            _die()
        if stage in ("half", "written"):
            path = self._path(key)
            self._make_folder(path.parent)
            aside = path.parent / ".00000000deadbeef.tmp"
            aside.write_bytes(data[: len(data) // 2] if stage == "half" else data)
            _die()
        done = write(self, key, data, new)
        _die()
        return done

    LocalStore._write = dying  # type: ignore[method-assign]


def _once(flag: Path) -> None:
    if not flag.exists():
        flag.touch()
        _die()


def _arm_session(flag: Path) -> None:
    read = activities.turn.beginning  # type: ignore[attr-defined]

    async def dying(*given: Any) -> Any:
        _once(flag)
        return await read(*given)

    activities.turn.beginning = dying  # type: ignore[attr-defined, assignment]


if at := os.environ.get("CRASH_AT"):
    activities.segments.EVERY = int(os.environ.get("CRASH_EVERY", "32"))
    stage, _, key = at.partition(":")
    if stage == "session":
        _arm_session(Path(os.environ["CRASH_FLAG"]))
    else:
        _arm(stage, key, Path(os.environ["CRASH_FLAG"]))
