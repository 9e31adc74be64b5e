"""A workspace on disk: seeing what is in it, and making it what it should be. Links are never followed."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from activities.canonical import sha256
from activities.listing import Kept, Listing
from activities.tools.confined import folder, replace

ASIDE = ".perdure-"
"""How the names begin under which tools write a file before it is whole."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

Stamp = tuple[int, int, int]
"""Time of the last change (ns), size and inode: while they are the same, so is the content."""


@dataclass(frozen=True)
class Seen:
    """A path in the folder. `stamp` is None for what has no content."""

    stamp: Stamp | None
    mode: int = 0
    link: str | None = None


def as_text(name: str) -> str:
    """A name of the disk as records hold it: JSON holds text, and a name that is not UTF-8 is none. So it is its bytes
    as hex digits after a NUL, which no name holds."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return f"\0{os.fsencode(name).hex()}"
    return name


def on_disk(name: str) -> str:
    """The reverse of `as_text`."""
    return os.fsdecode(bytes.fromhex(name[1:])) if name.startswith("\0") else name


def printed(path: str) -> str:
    """A recorded path as people see it: what is not UTF-8 as `\\xff`."""
    return "/".join(os.fsencode(on_disk(name)).decode("utf-8", "backslashreplace") for name in path.split("/"))


def _names(path: str) -> list[str]:
    return [on_disk(name) for name in path.split("/")]


def scan(root: Path) -> dict[str, Seen]:
    """Every file, link and empty folder below `root`; devices, pipes and half-written files are passed over."""
    found: dict[str, Seen] = {}
    if not root.is_dir():
        return found
    for top, folders, files, at in os.fwalk(root, follow_symlinks=False):
        here = "/".join(map(as_text, Path(top).relative_to(root).parts)) or "."
        prefix = "" if here == "." else f"{here}/"
        links = [name for name in folders if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)]
        if not folders and not files and prefix:
            found[prefix.rstrip("/")] = Seen(None)
        for name in [*files, *links]:
            with contextlib.suppress(FileNotFoundError):
                if not name.startswith(ASIDE) and (seen := _see(at, name)) is not None:
                    found[prefix + as_text(name)] = seen
    return found


def _see(at: int, name: str) -> Seen | None:
    info = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(info.st_mode):
        return Seen(None, link=as_text(os.readlink(name, dir_fd=at)))
    if not stat.S_ISREG(info.st_mode):
        return None
    return Seen((info.st_mtime_ns, info.st_size, info.st_ino), stat.S_IMODE(info.st_mode) & 0o777)


def read_file(root: Path, path: str) -> tuple[bytes, Stamp] | None:
    """The content of a file, with its stamp from before it was read; None when it is gone or no file any more."""
    *names, name = _names(path)
    try:
        with folder(root, names) as at, os.fdopen(os.open(name, _FILE, dir_fd=at), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                return None
            return file.read(), (info.st_mtime_ns, info.st_size, info.st_ino)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return None
        raise


def remove(root: Path, paths: Iterable[str], stays: Listing) -> None:
    """Removes paths, and folders that nothing stands in any more."""
    for path in sorted(paths, key=lambda path: path.count("/"), reverse=True):
        *names, name = _names(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(root, names) as at:
            _clear(at, name)
        for depth in range(len(names), 0, -1):
            if "/".join(map(as_text, names[:depth])) in stays:
                break
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(root.joinpath(*names[:depth]))


def put(root: Path, path: str, kept: Kept, data: bytes | None) -> Stamp | None:
    """Makes a path what it should be; gives the stamp of a file."""
    *names, name = _names(path)
    for depth in range(1, len(names) + 1):
        _make_way(root, names[:depth])
    with folder(root, names, create=True) as at:
        if data is not None:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                    _clear(at, name)
            replace(at, name, data, f"{ASIDE}{sha256(path.encode())[:16]}.tmp", kept.mode)
            info = os.stat(name, dir_fd=at, follow_symlinks=False)
            return info.st_mtime_ns, info.st_size, info.st_ino
        _clear(at, name)
        if kept.link is not None:
            os.symlink(on_disk(kept.link), name, dir_fd=at)
        else:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
    return None


def _make_way(root: Path, names: list[str]) -> None:
    """What should be a folder is not a file or a link."""
    with contextlib.suppress(FileNotFoundError), folder(root, names[:-1]) as at:
        if not stat.S_ISDIR(os.stat(names[-1], dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(names[-1], dir_fd=at)


def _clear(at: int, name: str) -> None:
    """Removes a file, a link or an empty folder."""
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=at)
