"""The activities at the edges of a run's life: `run.close`, and `run.probe` for one that is parked."""

import asyncio
import json
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.canonical import sha256
from activities.context import check
from activities.errors import StoreUnavailable
from activities.world import World
from workflows.catalog import CLOSE, PROBE
from workflows.keys import folder
from workflows.records import Closing, ClosingRequest, Head, ProbeRequest

LISTED = 50


class CloseActivities:
    """Closes runs: what they leave is stored."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=CLOSE.name)
    async def close(self, request: ClosingRequest) -> Closing:
        """Stores the files of the workspace and lists the first of them."""
        found = [
            await self._store(request.thread, path, name)
            for name, path in await asyncio.to_thread(files_in, self._world.workspaces / request.thread)
        ]
        return Closing(artifacts=found[-LISTED:], total=len(found))

    async def _store(self, thread: str, path: Path, name: str) -> dict[str, Any]:
        data = await asyncio.to_thread(path.read_bytes)
        digest = sha256(data)
        key = f"{folder(thread)}/files/{digest}"
        await self._world.store.put_new(key, data)
        return {"path": name, "sha256": digest, "bytes": len(data), "key": key}


class ProbeActivities:
    """Looks whether what a parked run waits for is well again."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROBE.name)
    async def probe(self, request: ProbeRequest) -> bool:
        """True when the cause is gone; fails, to be tried again later, while it is not."""
        if request.kind == "bundle" and request.bundle is not None:
            await self._world.bundles.manifest(request.bundle)
        elif request.kind == "checkpoint" and request.head is not None:
            await self._look_at_records(request, request.head)
        else:  # a write and a read: a full disk still reads
            key = f"{folder(request.thread)}/probe"
            await self._world.store.put(key, request.thread.encode())
            if await self._world.store.get(key) is None:
                raise StoreUnavailable(f"the store {self._world.store!r} does not keep what it is given")
        return True

    async def _look_at_records(self, request: ProbeRequest, head: Head) -> None:
        """All that the next turn reads, from the store: the chain, its bodies, the new ones, and what stands ahead."""
        thread = request.thread
        messages = (await self._world.contexts.read(thread, head)).messages
        new = [json.loads(await self._world.entries.fetch(thread, digest)) for digest in request.entries]
        if new:  # the calls of the last turn are answered
            check([*messages, *new])
        await self._world.checkpoints.find(thread, request.branch or head.branch, head.sequence + 1)


def files_in(workspace: Path) -> list[tuple[str, Path]]:
    """The regular files of a workspace, by name; links are not followed."""
    if not workspace.is_dir():
        return []
    paths = [path for path in workspace.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted((path.relative_to(workspace).as_posix(), path) for path in paths)
