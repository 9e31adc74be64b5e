"""Bodies: content-addressed, written once, checked at every read.

A worker remembers the bodies it has just written, since the next turn of the same run reads them.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from activities.canonical import preview, sha256
from activities.errors import CheckpointDamaged
from activities.store import Store
from workflows.keys import entry_key
from workflows.records import Ref

CACHE_BYTES = 64 * 1024 * 1024


class Entries:
    """The bodies of all threads, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached = 0

    async def put(self, thread: str, body: dict[str, Any], shown: str) -> Ref:
        """Stores a JSON body and gives its digest, size and a preview of `shown`."""
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")
        return await self.put_bytes(thread, data, shown)

    async def put_bytes(self, thread: str, data: bytes, shown: str) -> Ref:
        """The same for bytes."""
        digest = sha256(data)
        await self._store.put_new(entry_key(thread, digest), data)
        self._remember(f"{thread}/{digest}", data)
        return Ref(sha256=digest, bytes=len(data), preview=preview(shown))

    async def get(self, thread: str, digest: str) -> dict[str, Any]:
        """Reads a JSON body back. Raises CheckpointDamaged when it is gone or is not what its name says."""
        data = await self.get_bytes(thread, digest)
        body = json.loads(data)
        if not isinstance(body, dict):
            raise CheckpointDamaged(f"entry {digest} of thread {thread} is not an object")
        return body

    async def get_bytes(self, thread: str, digest: str) -> bytes:
        """The same for bytes."""
        name = f"{thread}/{digest}"
        data = self._cache.get(name)
        if data is not None:
            self._cache.move_to_end(name)
            return data
        return await self.fetch(thread, digest)

    async def fetch(self, thread: str, digest: str) -> bytes:
        """Reads from the store, whatever is remembered. Raises CheckpointDamaged as `get` does."""
        name = f"{thread}/{digest}"
        data = await self._store.get(entry_key(thread, digest))
        if data is None:
            raise CheckpointDamaged(f"entry {digest} of thread {thread} is missing from the store")
        if sha256(data) != digest:
            raise CheckpointDamaged(f"entry {digest} of thread {thread} has other content than its name says")
        self._remember(name, data)
        return data

    async def get_all(self, thread: str, digests: Sequence[str]) -> list[dict[str, Any]]:
        """Reads many, at once, in the order asked for."""
        return list(await asyncio.gather(*(self.get(thread, digest) for digest in digests)))

    async def messages(self, thread: str, digests: Sequence[str]) -> list[dict[str, Any]]:
        """The messages that entries hold: one each, or the several of a part (see `sessions.begin`)."""
        bodies = await self.get_all(thread, digests)
        return [message for body in bodies for message in body.get("messages", [body])]

    def warm(self, thread: str, bodies: Mapping[str, str]) -> None:
        """Remembers bodies that came with a segment, whose digest vouches for them."""
        for digest, text in bodies.items():
            self._remember(f"{thread}/{digest}", text.encode("utf-8"))

    def _remember(self, name: str, data: bytes) -> None:
        if name not in self._cache:
            self._cached += len(data)
        self._cache[name] = data
        self._cache.move_to_end(name)
        while self._cached > CACHE_BYTES and len(self._cache) > 1:
            self._cached -= len(self._cache.popitem(last=False)[1])
