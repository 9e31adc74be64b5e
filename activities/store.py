"""The object store: five verbs over a local folder, memory, S3, GCS or Azure, chosen by a URL.

`put_new` is put-if-absent: of any number of racing writers exactly one gets True. On a local folder a put counts once
the file and its folder are synced to disk; elsewhere once the service has answered. "Not there" is an answer (`None`);
"cannot be read" is StoreUnavailable, and never the same thing.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Awaitable
from datetime import timedelta
from errno import ENOTDIR
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import MemoryStore, ObjectStore, from_url

from activities.errors import StoreUnavailable

T = TypeVar("T")

RETRIES = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}
"""A service that does not answer for longer parks the run, which holds nothing while it waits. (One attempt ends after
30 s, a connection after 5: the library's own limits. Options given here would hide AWS_ALLOW_HTTP and the like.)"""


class Store(Protocol):
    """Where the bodies live. Keys are `/`-separated. Every verb raises StoreUnavailable when the store fails."""

    async def put(self, key: str, data: bytes) -> None:
        """Writes, whatever was there."""

    async def put_new(self, key: str, data: bytes) -> bool:
        """Writes unless something is there; False: something was, and stays."""

    async def get(self, key: str) -> bytes | None:
        """The bytes, or None when there is no such key."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys below a folder, in no promised order."""

    async def delete(self, prefix: str) -> int:
        """Deletes everything below a folder; how many objects that were."""


def open_store(url: str) -> Store:
    """The store for `file:///folder`, `memory://`, `s3://…`, `gs://…` or `az://…`. Raises ValueError otherwise."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path:
            raise ValueError(f"PERDURE_STORE: {url!r} is not a file URL; write file:///an/absolute/folder")
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        return RemoteStore(MemoryStore(), "memory")
    if parts.scheme in ("s3", "gs", "az"):
        store = from_url(url, retry_config=RETRIES)  # type: ignore[call-overload]
        return RemoteStore(store, f"{parts.scheme}://{parts.netloc}")
    raise ValueError(f"PERDURE_STORE: {url!r} is not known; use file:///…, s3://…, gs://… or az://…")


class LocalStore:
    """A folder. A file appears under its final name only when its content is on disk.

    The folder is made by the first put. Once it has been seen, a folder that is gone (a volume that is not mounted) is
    a store that cannot be read, not an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = False

    def __repr__(self) -> str:
        return f"file://{self.folder}"

    async def put(self, key: str, data: bytes) -> None:
        await self._guard(asyncio.to_thread(self._write, key, data, False))

    async def put_new(self, key: str, data: bytes) -> bool:
        return await self._guard(asyncio.to_thread(self._write, key, data, True))

    async def get(self, key: str) -> bytes | None:
        return await self._guard(asyncio.to_thread(self._read, key))

    async def keys(self, prefix: str) -> list[str]:
        return await self._guard(asyncio.to_thread(self._walk, prefix))

    async def delete(self, prefix: str) -> int:
        keys = await self.keys(prefix)
        await self._guard(asyncio.to_thread(self._remove, prefix))
        return len(keys)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"not a store key: {key!r}")
        return self.folder.joinpath(*parts)

    def _is_there(self) -> bool:
        """Whether there is a store yet. Raises NotADirectoryError when there was one."""
        if self.folder.is_dir():
            self._seen = True
        elif self._seen or self.folder.exists():
            raise NotADirectoryError(ENOTDIR, "its folder is gone, or is no folder")
        return self._seen

    def _read(self, key: str) -> bytes | None:
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            self._is_there()
            return None
        self._seen = True
        return data

    def _write(self, key: str, data: bytes, new: bool) -> bool:
        path = self._path(key)
        if new and path.exists():
            return False
        self._make_folder(path.parent)
        aside = path.parent / f".{secrets.token_hex(8)}.tmp"
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if new:
                os.link(aside, path)
            else:
                os.replace(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)
        sync_folder(path.parent)
        return True

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != self.folder:
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True, mode=0o700)
        elif not self._is_there():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._seen = True
        sync_folder(folder.parent)

    def _walk(self, prefix: str) -> list[str]:
        top = self._path(prefix.rstrip("/")) if prefix else self.folder
        if not self._is_there() or not _exists(top):
            return []
        found: list[str] = []
        for folder, _, names in os.walk(top, onerror=_raise):
            place = Path(folder).relative_to(self.folder)
            found += [(place / name).as_posix() for name in names if not name.endswith(".tmp")]
        return found

    def _remove(self, prefix: str) -> None:
        top = self._path(prefix.rstrip("/"))
        if _exists(top):
            shutil.rmtree(top)
            sync_folder(top.parent)

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except OSError as error:
            raise StoreUnavailable(f"the store {self!r} failed: {error.strerror}") from None


class RemoteStore:
    """A bucket (or memory) through obstore, which retries short faults itself."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.store, self.name = store, name

    def __repr__(self) -> str:
        return self.name

    async def put(self, key: str, data: bytes) -> None:
        await self._guard(obstore.put_async(self.store, key, data))

    async def put_new(self, key: str, data: bytes) -> bool:
        try:
            await self._guard(obstore.put_async(self.store, key, data, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    async def get(self, key: str) -> bytes | None:
        try:
            found = await self._guard(obstore.get_async(self.store, key))
            return bytes(await self._guard(found.bytes_async()))
        except (NotFoundError, FileNotFoundError):
            return None

    async def keys(self, prefix: str) -> list[str]:
        return await self._guard(self._collect(prefix))

    async def delete(self, prefix: str) -> int:
        keys = await self.keys(prefix)
        if keys:
            await self._guard(obstore.delete_async(self.store, keys))
        return len(keys)

    async def _collect(self, prefix: str) -> list[str]:
        return [item["path"] async for batch in obstore.list(self.store, prefix=prefix or None) for item in batch]

    async def _guard(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (AlreadyExistsError, NotFoundError, FileNotFoundError):
            raise
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"the store {self!r} failed: {type(error).__name__}") from None


def _exists(path: Path) -> bool:
    """Whether it is there; unlike `Path.exists`, what cannot be looked at raises OSError."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _raise(error: OSError) -> None:
    raise error


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
