"""The activities at the edges of a run's life: `run.close`, and `run.probe` for one that is parked."""

import json
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.context import check
from activities.errors import StoreUnavailable
from activities.folders import printed
from activities.listing import Listing, is_artifact
from activities.world import World
from workflows.catalog import CLOSE, PROBE
from workflows.keys import file_key, folder
from workflows.records import Head
from workflows.session_records import Closing, ClosingRequest
from workflows.side_records import ProbeRequest

LISTED = 50


class CloseActivities:
    """Closes runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=CLOSE.name)
    async def close(self, request: ClosingRequest) -> Closing:
        """Lists the last files of the workspace, and counts them all."""
        found = artifacts(request.thread, await self._world.workspaces.listing(request.thread, request.files))
        return Closing(artifacts=found[-LISTED:], total=len(found))


class ProbeActivities:
    """Looks whether what a parked run waits for is well again."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROBE.name)
    async def probe(self, request: ProbeRequest) -> bool:
        """True when the cause is gone; fails, to be tried again later, while it is not."""
        try:
            await self._look(request)
        except ApplicationError as error:  # that these are final for other activities is why the run is parked
            raise ApplicationError(error.message, type=error.type) from None
        return True

    async def _look(self, request: ProbeRequest) -> None:
        if request.kind == "bundle" and request.bundle is not None:
            await self._world.bundles.manifest(request.bundle)
        elif request.kind == "workspace":
            await self._world.workspaces.check(request.thread, request.files)
        elif request.kind == "checkpoint" and request.head is not None:
            await self._look_at_records(request, request.head)
        else:  # a write and a read: a full disk still reads
            key = f"{folder(request.thread)}/probe"
            await self._world.store.put(key, request.thread.encode())
            if await self._world.store.get(key) is None:
                raise StoreUnavailable(f"the store {self._world.store!r} does not keep what it is given")

    async def _look_at_records(self, request: ProbeRequest, head: Head) -> None:
        """All that the next turn reads, from the store: the chain, its bodies, the new ones, and what stands ahead."""
        thread = request.thread
        messages = (await self._world.contexts.read(thread, head)).messages
        new = [json.loads(await self._world.entries.fetch(thread, digest)) for digest in request.entries]
        if new:  # the calls of the last turn are answered
            check([*messages, *new])
        await self._world.checkpoints.find(thread, request.branch or head.branch, head.sequence + 1)


def artifacts(thread: str, listing: Listing) -> list[dict[str, Any]]:
    """The files that a run made, as the result lists them."""
    return [
        {"path": printed(path), "sha256": kept.sha256, "bytes": kept.bytes, "key": file_key(thread, kept.sha256)}
        for path, kept in sorted(listing.items())
        if kept.sha256 is not None and is_artifact(path)
    ]
