"""The files of the run's workspace.

`write_file` and `edit_file` are `once`. Their lookups compare the file with what this operation was about to make of
it (see `undo`): made → the result; untouched, or nothing on record → surely not made; anything else → somebody changed
the file since, and a person has to look.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator

from pydantic import BaseModel

from activities.tools import undo
from activities.tools.confined import READ_LIMIT, explained, folder, mode_of, parts_of, read, replace
from activities.tools.declaration import tool
from activities.tools.errors import ToolError
from activities.tools.operation import Operation

OUTPUT_LIMIT = 100_000
"""Bytes of text that a tool gives back."""
_ASIDE = ".perdure-"


class Written(BaseModel):
    """A file as an operation left it."""

    path: str
    sha256: str
    bytes: int


@tool(effect="read", local=True)
def list_files(path: str = ".", *, op: Operation) -> str:
    """List a folder of the workspace: folders end with a slash, files show their size in bytes.

    Args:
        path: the folder, relative to the workspace
    """
    names = parts_of(path)
    with _known(path), folder(op.workspace, names) as at:
        lines = [_entry(at, name) for name in sorted(os.listdir(at)) if not name.startswith(_ASIDE)]
    return capped("\n".join(lines)) or "[the folder is empty]"


@tool(effect="read", local=True)
def read_file(path: str, start: int = 1, lines: int = 200, *, op: Operation) -> str:
    """Read lines of a text file of the workspace.

    Args:
        path: the file, relative to the workspace
        start: the number of the first line, from 1
        lines: how many lines at most
    """
    if start < 1 or lines < 1:
        raise ToolError("start and lines are at least 1")
    content = _text(path, _content(op, path))
    every = content.splitlines(keepends=True)
    wanted = every[start - 1 : start - 1 + lines]
    if every and not wanted:
        raise ToolError(f"{path!r} has {len(every)} lines; start={start} is past its end")
    text = capped("".join(wanted))
    whole = start == 1 and len(wanted) == len(every)
    return text if whole else f"{text.rstrip(chr(10))}\n[lines {start} to {start + len(wanted) - 1} of {len(every)}]"


@tool(effect="read")
def search_files(pattern: str, path: str = ".", *, op: Operation) -> str:
    """Find lines in the text files of the workspace. Case does not matter. Gives path:line: text.

    Args:
        pattern: plain text to find; * stands for anything within a line (no regular expressions)
        path: the file or folder to search, relative to the workspace
    """
    # A regular expression written by a model can hold the interpreter, and with it the worker, for ever.
    pieces = [piece for piece in pattern.casefold().split("*") if piece]
    if not pieces:
        raise ToolError("the pattern is empty; give some text to find")
    found: list[str] = []
    size = 0
    for shown, text in _texts(op, parts_of(path), path):
        for number, line in enumerate(text.splitlines(), 1):
            if _matches(line.casefold(), pieces):
                found.append(f"{shown}:{number}: {line.strip()[:300]}")
                size += len(found[-1])
        if size > OUTPUT_LIMIT:
            break
    return capped("\n".join(found)) or f"[nothing matches {pattern!r}]"


@tool(effect="once", writes=True)
def write_file(path: str, content: str, *, op: Operation) -> Written:
    """Write a text file of the workspace: a new one, or in place of one. Folders are made as needed.

    Args:
        path: the file, relative to the workspace
        content: the whole text
    """
    return _change(op, path, lambda _: content.encode(), create=True)


@write_file.lookup
def find_written(op: Operation) -> Written | None:
    """Whether the file was written by this operation; see the top of this file."""
    return _find(op, lambda _: str(op.arguments["content"]).encode())


@tool(effect="once", writes=True)
def edit_file(path: str, old: str, new: str, *, op: Operation) -> Written:
    """Replace a piece of a text file of the workspace. The piece must stand in the file exactly once.

    Args:
        path: the file, relative to the workspace
        old: the piece as it stands in the file, with enough around it to be found only once
        new: what to put in its place
    """
    return _change(op, path, lambda before: _edited(path, before, old, new))


@edit_file.lookup
def find_edited(op: Operation) -> Written | None:
    """Whether the file was edited by this operation; see the top of this file."""
    path, old, new = (str(op.arguments[name]) for name in ("path", "old", "new"))
    return _find(op, lambda before: _edited(path, before, old, new))


@write_file.compensate
@edit_file.compensate
def restore_file(op: Operation, result: Written) -> None:
    """Puts back what the file held before, or removes a new one. Raises `ToolError` if it was changed since."""
    before = undo.earlier(op)
    *names, name = parts_of(result.path)
    with folder(op.workspace, names) as at:
        now = read(at, name, result.path)
        if now == before:
            return
        if now is None or _digest(now) != result.sha256:
            raise ToolError(f"{result.path!r} was changed since; it is left as it is")
        if before is None:
            os.unlink(name, dir_fd=at)
            os.fsync(at)
        else:
            replace(at, name, before, _aside(op), mode_of(at, name, result.path))


def capped(text: str) -> str:
    """Text of at most `OUTPUT_LIMIT` bytes, with a remark if some is left off."""
    data = text.encode("utf-8", "replace")
    if len(data) <= OUTPUT_LIMIT:
        return text
    kept = data[:OUTPUT_LIMIT].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {OUTPUT_LIMIT} of {len(data)} bytes are shown]"


def _change(op: Operation, path: str, make: Callable[[bytes | None], bytes], create: bool = False) -> Written:
    """Makes the new content out of the old one and puts it in place; the old one is on record first."""
    *names, name = _file(path)
    with _known(path), folder(op.workspace, names, create) as at:
        before = read(at, name, path)
        mode = mode_of(at, name, path)
        after = make(before)
        if len(after) > READ_LIMIT:
            raise ToolError(f"{path!r} would have {len(after)} bytes; at most {READ_LIMIT} are kept in one file")
        # An attempt that is repeated although its change is there keeps the record of what was before it.
        if before != after or not undo.recorded(op):
            undo.record(op, before)
        with explained(path):
            replace(at, name, after, _aside(op), mode)
    return _written(path, after)


def _find(op: Operation, make: Callable[[bytes | None], bytes]) -> Written | None:
    path = str(op.arguments["path"])
    if not undo.recorded(op):
        return None
    before = undo.earlier(op)
    after = make(before)
    now = None
    *names, name = _file(path)
    with contextlib.suppress(FileNotFoundError), folder(op.workspace, names) as at:
        now = read(at, name, path)
    if now == after:
        return _written(path, after)
    if now == before:
        return None
    raise ToolError(
        f"{path!r} is neither as this operation found it nor as it would leave it; somebody changed it since"
    )


def _edited(path: str, before: bytes | None, old: str, new: str) -> bytes:
    if before is None:
        raise ToolError(f"there is no file {path!r}; write_file makes one")
    piece = old.encode()
    count = before.count(piece) if piece else 0
    if count != 1:
        reason = f"stands {count} times in" if count else "does not stand in"
        raise ToolError(f"the piece to replace {reason} {path!r}; give one that stands there exactly once")
    return before.replace(piece, new.encode())


def _content(op: Operation, path: str) -> bytes:
    *names, name = _file(path)
    with _known(path), folder(op.workspace, names) as at:
        data = read(at, name, path)
    if data is None:
        raise ToolError(f"there is no file {path!r} in the workspace; list_files shows what there is")
    return data


def _texts(op: Operation, names: list[str], path: str) -> Iterator[tuple[str, str]]:
    """The text files at and under a path, in order of their names. Links and what cannot be read are left out."""
    try:
        with folder(op.workspace, names) as at:
            inside = sorted(name for name in os.listdir(at) if not name.startswith(_ASIDE))
            kinds = {name: os.stat(name, dir_fd=at, follow_symlinks=False).st_mode for name in inside}
    except (ToolError, FileNotFoundError):
        yield "/".join(names), _text(path, _content(op, path))
        return
    for name, kind in kinds.items():
        with contextlib.suppress(ToolError, OSError):
            inner = [*names, name]
            shown = "/".join(inner)
            if stat.S_ISDIR(kind):
                yield from _texts(op, inner, shown)
            elif stat.S_ISREG(kind):
                yield shown, _text(shown, _content(op, shown))


def _entry(at: int, name: str) -> str:
    info = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        return f"{name}/"
    return (
        f"{name} ({info.st_size} bytes)" if stat.S_ISREG(info.st_mode) else f"{name} (a link or device, not followed)"
    )


def _matches(line: str, pieces: list[str]) -> bool:
    at = 0
    for piece in pieces:
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


def _text(path: str, data: bytes) -> str:
    if b"\0" in data[:8192]:
        raise ToolError(f"{path!r} is binary, {len(data)} bytes")
    return data.decode("utf-8", "replace")


def _file(path: str) -> list[str]:
    names = parts_of(path)
    if not names:
        raise ToolError(f"the path {path!r} names no file")
    return names


@contextlib.contextmanager
def _known(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"there is no {path!r} in the workspace; list_files shows what there is") from None


def _written(path: str, content: bytes) -> Written:
    return Written(path="/".join(parts_of(path)), sha256=_digest(content), bytes=len(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _aside(op: Operation) -> str:
    return f"{_ASIDE}{undo.key(op.operation_id)[:16]}.tmp"
