"""Files inside one folder, whatever the path says and whoever swaps names for links meanwhile.

Every step from the root down opens one name relative to the folder already open, and refuses links (`O_NOFOLLOW`). So
there is no moment between a check and its use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from activities.tools.errors import ToolError

READ_LIMIT = 10_000_000
"""Bytes of the largest file that is read."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait for its writer
_LINKED = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


def parts_of(path: str) -> list[str]:
    """The names that a workspace path is made of. Raises `ToolError` for a path that cannot be inside."""
    problem = None
    if "\0" in path:
        problem = "holds a NUL"
    elif path.startswith("/"):
        problem = "is absolute; give it relative to the workspace"
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        problem = "leads out of the workspace ('..'); give it relative to the workspace"
    try:
        if any(len(os.fsencode(name)) > 255 for name in names) or len(os.fsencode(path)) > 4000:
            problem = "is too long; a name has at most 255 bytes"
    except UnicodeEncodeError:
        problem = "is not proper text"
    if problem:
        raise ToolError(f"the path {_shown(path)} {problem}")
    return names


@contextlib.contextmanager
def folder(root: Path, names: list[str], create: bool = False) -> Iterator[int]:
    """A descriptor of a folder under `root`. Raises `ToolError` when there is none, or a link is in the way."""
    root.mkdir(parents=True, exist_ok=True)
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, name in enumerate(names, 1):
            with explained("/".join(names[:depth])):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here)
                        os.fsync(here)
                inner = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def read(at: int, name: str, shown: str, limit: int = READ_LIMIT) -> bytes | None:
    """The content of a regular file in the folder `at`; None if there is none. Raises `ToolError`."""
    try:
        with explained(shown):
            file = os.open(name, _FILE, dir_fd=at)
    except FileNotFoundError:
        return None
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        os.close(file)
        raise ToolError(f"{_shown(shown)} is not a file")
    with os.fdopen(file, "rb") as opened:
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise ToolError(f"{_shown(shown)} has {info.st_size} bytes, more than the {limit} that can be read")
    return data


def replace(at: int, name: str, content: bytes, aside: str, mode: int = 0o644) -> None:
    """Puts a file in place in one step, synced to the disk. `aside` is the name that it is written under first."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=at)  # of an attempt that was killed here
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fchmod(opened.fileno(), mode)
            os.fsync(opened.fileno())
        os.rename(aside, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=at)
        raise
    os.fsync(at)


def mode_of(at: int, name: str, shown: str) -> int:
    """The permissions of a file, or those of a new one. Raises `ToolError` for anything but a file."""
    try:
        info = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(info.st_mode):
        raise ToolError(f"{_shown(shown)} is not a file")
    return stat.S_IMODE(info.st_mode) & 0o777


@contextlib.contextmanager
def explained(shown: str) -> Iterator[None]:
    """Refusals of the system as `ToolError`. A missing file is for the caller to judge, unless a folder is missing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        # ELOOP and ENOTDIR are what O_NOFOLLOW gives for a link.
        reason = f"{error.strerror}; links are not followed" if error.errno in _LINKED else error.strerror
        raise ToolError(f"{_shown(shown)} cannot be used: {reason}") from error


def _shown(path: str) -> str:
    return repr(path if len(path) <= 200 else path[:200] + "…")
