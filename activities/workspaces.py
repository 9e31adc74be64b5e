"""The workspace as state: what a tool changed is in the store before its answer counts, and any worker can have it.

The store holds each content once (`files/<sha256>`), and small records of what changed. A folder on a machine remembers
in an index (beside the workspaces, where no tool reaches) which recorded state it was brought to last, and how each
file looked then. So a change is found by comparing stamps, and a restore touches only what differs between two recorded
states: what somebody put there by hand stays, and becomes part of the next change.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from activities import folders
from activities.canonical import sha256
from activities.entries import Entries
from activities.errors import CheckpointDamaged, WorkspaceUnavailable
from activities.listing import Base, Change, Kept, Listing, difference, merge
from activities.store import Store
from workflows.keys import file_key
from workflows.records import Files

MOST_BYTES = 100_000_000
"""The largest file that is kept. A larger one stays on its machine, and the model is told."""
AT_ONCE = 16
SMALL_LISTING = 300
MANY_CHANGES = 8
INDEX = ".perdure-index"
SCRATCH = ".perdure-scratch"
CACHED = 200


class Index(BaseModel):
    """What a folder is known to hold. `at` names the turn, `applied` the changes it has of those recorded since."""

    origin: str = Field(default_factory=lambda: secrets.token_hex(6))
    number: int = 0
    at: str = ""
    base: str | None = None
    applied: list[str] = Field(default_factory=list)
    files: Listing = Field(default_factory=dict)
    stamps: dict[str, folders.Stamp] = Field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """`change`: the digest of what is recorded, None when nothing changed. `too_large`: files that are not kept, those
    that cannot be read among them."""

    change: str | None = None
    too_large: list[str] = field(default_factory=list)

    @property
    def body(self) -> dict[str, str]:
        """What the answer's entry says of it."""
        return {} if self.change is None else {"files": self.change}

    def remark(self) -> str:
        """What the model is told of files that are not kept."""
        names = ", ".join(self.too_large)
        return f"\n[not kept, since it is larger than {MOST_BYTES} bytes, or cannot be read: {names}]" if names else ""


class Workspaces:
    """The workspaces of all threads on this machine, over one store."""

    def __init__(self, store: Store, entries: Entries, folder: Path) -> None:
        self._store, self._entries, self._folder = store, entries, folder
        self._listings: OrderedDict[tuple[str, str], Listing] = OrderedDict()

    def path(self, thread: str) -> Path:
        """The folder of one run, made if need be."""
        path = self._folder / thread
        path.mkdir(parents=True, exist_ok=True)
        return path

    async def listing(self, thread: str, files: Files) -> Listing:
        """What the workspace holds by the record. Raises WorkspaceUnavailable."""
        name = (thread, f"{files.base}/{'/'.join(files.changes)}")
        held = self._listings.get(name)
        if held is None:
            try:
                base = Base() if files.base is None else Base.model_validate(await self._entry(thread, files.base))
                changes = [Change.model_validate(await self._entry(thread, each)) for each in files.changes]
            except (CheckpointDamaged, ValidationError) as error:
                raise WorkspaceUnavailable(f"the record of the workspace of {thread} is damaged: {error}") from None
            held = self._listings[name] = merge(base.files, changes)
        self._listings.move_to_end(name)
        while len(self._listings) > CACHED:
            self._listings.popitem(last=False)
        return held

    async def fold(self, thread: str, files: Files) -> Files:
        """The same state in fewer records, where that is cheap or the changes have become many."""
        listing = await self.listing(thread, files) if files.changes else {}
        if not files.changes or (len(listing) > SMALL_LISTING and len(files.changes) < MANY_CHANGES):
            return files
        ref = await self._entries.put(thread, Base(files=listing).model_dump(mode="json", exclude_defaults=True), "")
        return Files(base=ref.sha256)

    async def restore(self, thread: str, files: Files, at: str) -> None:
        """Brings the folder to the recorded state before a tool of turn `at` uses it.

        Within a turn only what the folder lacks is added, since other calls of the turn may be at work in it. Raises
        WorkspaceUnavailable.
        """
        index = self._read_index(thread)
        if index is None and files == Files():
            return
        if index is not None and self._is_there(thread, index, files, at):
            return
        try:
            async with self._lock(thread):
                await self._restore(thread, files, at)
        except OSError as error:
            message = f"the workspace of {thread} cannot be written on this machine: {error.strerror}"
            raise WorkspaceUnavailable(message) from None

    async def snapshot(self, thread: str, files: Files, at: str) -> Snapshot:
        """Stores what has changed in the folder since it was last looked at. `files`, `at`: what the call found, and
        its turn; a change beyond that which nobody has reported is of an attempt that was killed, and is stored again.
        """
        index = self._read_index(thread)
        if index is None and not os.listdir(self.path(thread)):
            return Snapshot()
        async with self._lock(thread):
            index = self._read_index(thread) or Index(at=at, base=files.base)
            unreported = set(index.applied) - set(files.changes)
            before = await self.listing(thread, files) if unreported else index.files
            seen = await asyncio.to_thread(folders.scan, self.path(thread))
            found, too_large = await self._keep(thread, index, seen)
            changed, gone = difference(before, found)
            if not changed and not gone:
                return Snapshot(too_large=too_large)
            index.number += 1
            change = Change(origin=index.origin, number=index.number, changed=changed, gone=gone)
            ref = await self._entries.put(thread, change.model_dump(mode="json", exclude_defaults=True), "")
            index.files = found
            index.applied.append(ref.sha256)
            await asyncio.to_thread(self._write_index, thread, index)
            return Snapshot(ref.sha256, too_large)

    async def content(self, thread: str, kept: Kept) -> bytes:
        """The content of a kept file. Raises WorkspaceUnavailable when it is gone or is not what its name says."""
        key = file_key(thread, kept.sha256 or "")
        data = await self._store.get(key)
        if data is None:
            raise WorkspaceUnavailable(f"{key} is missing from the store")
        if sha256(data) != kept.sha256:
            raise WorkspaceUnavailable(f"{key} has other content than its name says")
        return data

    async def lay_out(self, thread: str, files: Files, root: Path) -> None:
        """Makes an empty folder what the record says: a copy that nothing is kept of. Raises WorkspaceUnavailable."""
        for path, kept in (await self.listing(thread, files)).items():
            data = None if kept.sha256 is None else await self.content(thread, kept)
            await asyncio.to_thread(folders.put, root, path, kept, data)

    def scratch(self, name: str) -> Path:
        """A folder of that name beside the workspaces, where no tool reaches; it may be there."""
        return self._folder / SCRATCH / name

    async def check(self, thread: str, files: Files) -> None:
        """Raises WorkspaceUnavailable unless everything that the record names is in the store."""
        listing = await self.listing(thread, files)
        await _all(self.content(thread, kept) for kept in listing.values() if kept.sha256 is not None)

    # The folder

    def _is_there(self, thread: str, index: Index, files: Files, at: str) -> bool:
        applied = (index.at, index.base) == (at, files.base) and set(files.changes) <= set(index.applied)
        return applied and (self._folder / thread).is_dir()

    async def _restore(self, thread: str, files: Files, at: str) -> None:
        index, root = self._read_index(thread) or Index(), self.path(thread)
        if index.files and not os.listdir(root):
            index.files, index.stamps, index.at = {}, {}, ""  # the folder was removed
        if (index.at, index.base) == (at, files.base):
            lacking = [each for each in files.changes if each not in index.applied]
            target = merge(index.files, [Change.model_validate(await self._entry(thread, each)) for each in lacking])
            index.applied += lacking
        else:
            target = await self.listing(thread, files)
            index.applied = list(files.changes)
        changed, gone = difference(index.files, target)
        await asyncio.to_thread(folders.remove, root, gone, target)
        await _all(self._put(thread, root, index, path, kept) for path, kept in changed.items())
        index.at, index.base, index.files = at, files.base, dict(target)
        index.stamps = {path: stamp for path, stamp in index.stamps.items() if path in target}
        await asyncio.to_thread(self._write_index, thread, index)

    async def _put(self, thread: str, root: Path, index: Index, path: str, kept: Kept) -> None:
        data = None if kept.sha256 is None else await self.content(thread, kept)
        stamp = await asyncio.to_thread(folders.put, root, path, kept, data)
        if stamp is not None:
            index.stamps[path] = stamp

    async def _keep(self, thread: str, index: Index, seen: dict[str, folders.Seen]) -> tuple[Listing, list[str]]:
        """The listing of what was seen; contents that are new are stored."""
        found: Listing = {}
        too_large: list[str] = []

        async def one(path: str, each: folders.Seen) -> None:
            held = index.files.get(path)
            if each.stamp is None:
                found[path] = Kept(link=each.link)
            elif held is not None and index.stamps.get(path) == each.stamp:
                found[path] = held.model_copy(update={"mode": each.mode})
            elif each.stamp[1] > MOST_BYTES:
                too_large.append(path)
            elif (read := await self._content_of(thread, path, too_large)) is not None:
                data, index.stamps[path] = read
                found[path] = Kept(sha256=sha256(data), bytes=len(data), mode=each.mode)
                if held is None or held.sha256 != found[path].sha256:
                    await self._store.put_new(file_key(thread, sha256(data)), data)

        await _all(one(path, each) for path, each in seen.items())
        return dict(sorted(found.items())), sorted(too_large)

    async def _content_of(self, thread: str, path: str, left: list[str]) -> tuple[bytes, folders.Stamp] | None:
        """The file as it is; a worker that is not root may not be let in, and then it is `left` out."""
        try:
            return await asyncio.to_thread(folders.read_file, self._folder / thread, path)
        except PermissionError:
            left.append(path)
            return None

    async def _entry(self, thread: str, digest: str) -> dict[str, Any]:
        return await self._entries.get(thread, digest)

    # The index

    def _read_index(self, thread: str) -> Index | None:
        try:
            return Index.model_validate(json.loads((self._folder / INDEX / f"{thread}.json").read_bytes()))
        except FileNotFoundError:
            return None
        except ValueError:  # cut off by a power failure: the folder is looked at anew
            return Index()

    def _write_index(self, thread: str, index: Index) -> None:
        path = self._folder / INDEX / f"{thread}.json"
        aside = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
        aside.write_text(index.model_dump_json(exclude_defaults=False))
        aside.replace(path)

    @contextlib.asynccontextmanager
    async def _lock(self, thread: str) -> AsyncIterator[None]:
        """One at a time in this folder, over all processes of this machine."""
        (self._folder / INDEX).mkdir(parents=True, exist_ok=True)
        handle = os.open(self._folder / INDEX / f"{thread}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.02)
            yield
        finally:
            os.close(handle)


async def _all(work: Iterable[Any]) -> None:
    """Awaits all, some at a time, then raises the first failure if there is one."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(each: Any) -> None:
        async with limit:
            await each

    for end in await asyncio.gather(*map(one, work), return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
