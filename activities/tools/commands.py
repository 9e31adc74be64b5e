"""Runs one command to its end or its deadline, keeps how its output begins and ends, and leaves nothing of it."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from activities.tools.errors import ToolError, ToolTimeout
from activities.tools.operation import Operation
from activities.tools.sandbox import SCRATCH, Place, environment, isolated, problem

HEAD_BYTES = 20_000
TAIL_BYTES = 20_000
MOST_ARGUMENT_BYTES = 100_000
_PIECE = 1 << 16
_LOOK = 0.05
"""Seconds between two looks at whether a silent command has ended."""


@dataclass
class Said:
    """What a command said, both streams in the order they came: the beginning and the end of it."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = HEAD_BYTES - len(self.head)
        self.head += data[:room]
        self.tail += data[max(room, 0) :]
        del self.tail[:-TAIL_BYTES]

    def text(self) -> str:
        """As text, whatever it was."""
        if b"\0" in self.head or b"\0" in self.tail:
            return f"[binary output, {self.total} bytes]"
        left_out = self.total - len(self.head) - len(self.tail)
        if left_out == 0:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = self.head.decode("utf-8", "replace"), self.tail.decode("utf-8", "replace")
        return f"{head}\n[… {left_out} of {self.total} bytes left out …]\n{tail}"


@dataclass(frozen=True)
class Ran:
    """How a command ended: `code` is None when it was killed at its deadline."""

    code: int | None
    said: str
    isolated: bool


def run(
    op: Operation,
    argv: list[str],
    seconds: float,
    *,
    place: Place | None = None,
    writable: bool = True,
    more: dict[str, str] | None = None,
) -> Ran:
    """Runs `argv` in the operation's workspace. Raises `ToolError` when nothing was run."""
    place, apart = place or Place(), problem() is None
    if not apart and op.approved_by is None:
        raise ToolError(f"commands are not isolated on this worker ({problem()}), and nobody approved this one")
    workspace = op.workspace.resolve()
    variables = environment(place, SCRATCH if apart else workspace) | (more or {})
    _check(argv, variables["PATH"], workspace)
    line = isolated(argv, workspace, place, writable=writable) if apart else argv
    process = subprocess.Popen(
        line,
        cwd=workspace,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=None if apart or _alone() else 0,
    )
    said, late = Said(), True
    try:
        late = not _follow(process, said, time.monotonic() + seconds)
    finally:
        _end(process, apart, seconds)
        _drain(process, said)
    return Ran(None if late else process.wait(), said.text(), apart)


def _check(argv: list[str], path: str, workspace: Path) -> None:
    if not argv or not argv[0]:
        raise ToolError("argv is empty; give the program and its arguments, each by itself")
    if any("\0" in part for part in argv):
        raise ToolError("argv holds a NUL")
    if sum(len(part.encode("utf-8", "replace")) for part in argv) > MOST_ARGUMENT_BYTES:
        raise ToolError(f"argv is longer than {MOST_ARGUMENT_BYTES} bytes; write a file and name it")
    program = argv[0]
    if "/" not in program and shutil.which(program, path=path) is None:
        hint = "; there is no shell here: give the arguments apart" if " " in program else ""
        raise ToolError(f"there is no program {program[:100]!r} on this worker{hint}")


def _follow(process: subprocess.Popen[bytes], said: Said, end: float) -> bool:
    """Reads until the command has ended; False when `end`, on the monotonic clock, came first. What holds its output
    open after it does not count."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            if not selector.select(min(left, _LOOK)):
                if process.poll() is not None:
                    return True
            elif data := os.read(process.stdout.fileno(), _PIECE):
                said.add(data)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
                return process.returncode is not None
    return process.poll() is not None


def _end(process: subprocess.Popen[bytes], apart: bool, seconds: float) -> None:
    """Kills what is left. An isolated command is the first process of a namespace, and all others end with it."""
    if process.poll() is None:
        process.kill()
    process.wait()
    if not apart and not _alone():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif not apart:
        _end_group(seconds)


def _alone() -> bool:
    """Whether this is the process of one tool call, with a group of its own: what it starts stays in that group, so
    that it ends with the worker, too."""
    return getattr(sys.modules.get("__main__"), "LEADS_ITS_GROUP", False)


def _end_group(seconds: float) -> None:
    if not Path("/proc/self").exists():
        raise ToolTimeout(seconds)  # then the worker kills the group, us too
    while left := [pid for pid in _group() if pid != os.getpid()]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _group() -> list[int]:
    """The processes of our group that still run."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, _, group = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) == os.getpid() and state not in "ZX":
                found.append(int(name))
    return found


def _drain(process: subprocess.Popen[bytes], said: Said) -> None:
    """What is in the pipe already; whoever else may hold it is not waited for."""
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(BlockingIOError):
        for _ in range(1000):
            data = os.read(process.stdout.fileno(), _PIECE)
            if not data:
                return
            said.add(data)
