"""Forks of recorded runs, made by the activities that make them, without a server."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.testing import ActivityEnvironment

from activities.fork_input import ForkInput, pinned
from activities.forking import ForkActivities
from activities.origin import find_past
from activities.world import World
from scripts import forks
from tests.unit.past.recorded import Recorded
from workers.settings import read_settings
from workflows.fork_records import Forked, ForkRequest
from workflows.records import Call

SOURCE, FORK, SECOND = "a1.9c41d07be2f5", "b1.0123456789ab", "c1.ba9876543210"
TOOLS = ["list_files", "notify", "write_file"]


async def says(run: Recorded, text: str, *, commit: bool = True) -> Call:
    """A turn that makes an effect; `commit`: it happened."""
    saved = await run.turn(("notify", {"text": text}), answers=["said"])
    call = Call.model_validate((saved.outputs.turn or {})["calls"][0])
    if commit:
        await run.commit(call)
    return call


async def fork(world: World, source: str, checkpoint: int, name: str, **more: Any) -> tuple[Recorded, Forked]:
    """A fork as `run.open` and `run.fork` make it, where its first turn begins."""
    wanted = {"workflow_id": source.partition(".")[0], "checkpoint": checkpoint, **more}
    start = await pinned(world, name, ForkInput.model_validate(wanted))
    assert start.record is not None
    assert start.bundle is not None
    branch = name[-8:]
    request = ForkRequest(
        thread=name, branch=branch, head=start.record.head(), bundle=start.bundle, ancestry=start.ancestry
    )
    data = json.dumps({"fork": wanted}).encode()
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    environment = ActivityEnvironment(client=await Client.connect("127.0.0.1:1", lazy=True))
    forked: Forked = await environment.run(ForkActivities(world).fork, request, RawValue(payload))
    run = Recorded(world.workspaces.path(name).parents[1], name, branch)
    run.ref, run.head, run.versions = start.bundle, request.head, start.record.versions
    run.ancestry_of, run.base = start.ancestry, forked.base
    run.seconds = 600  # later than all of the source
    run.new = [item.ref for item in forked.answers if item.ref is not None]
    return run, forked


async def known(world: World, name: str) -> dict[str, bool]:
    """The effects that a fork keeps of its source, and whether its context holds them."""
    return {each.record.operation_id: not each.after for each in await find_past(world.store, name)}


async def preview(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: int,
    *edits: dict[str, Any],
    run: str = "a1",
    ended: str = "",
) -> dict[str, Any]:
    """What `perdure fork` says before anything runs. All runs are open but `ended`."""

    async def still_open(_: Any, runs: Iterable[str]) -> set[str]:
        return set(runs) - {ended}

    async def made(*_: Any) -> World:
        return world

    monkeypatch.setattr(forks, "make_world", made)
    monkeypatch.setattr(forks, "_open", still_open)
    wanted = forks.fork_input({"fork": {"workflow_id": run, "checkpoint": checkpoint, "edits": list(edits)}})
    client = await Client.connect("127.0.0.1:1", lazy=True)
    return (await forks.report(client, read_settings({}), wanted, None)).view()
