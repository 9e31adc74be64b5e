"""What a fork would begin with, told before anything runs: out of the store alone."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.context import Messages
from activities.fork_input import ForkInput, wanted_of
from activities.fork_start import Start, load_start
from activities.opening import RunInput, check_fields
from activities.origin import PastEffect
from activities.past import past_effects
from activities.sources import Sources, workflow_of
from activities.world import World
from scripts.commands.running import Refused
from workers.settings import Settings
from workers.worker import make_world
from workflows.messages import command, explain


@dataclass(frozen=True)
class Report:
    """See `view`."""

    start: Start
    workflow_id: str
    effects: list[PastEffect]
    undone: list[PastEffect]
    undoable: set[str]
    open_runs: set[str]
    now: dict[str, str]

    def view(self) -> dict[str, Any]:
        """As JSON: where it begins, effects that the fork knows of, of these the `undone` ones, and those that
        it does not know, versions then and now."""
        record = self.start.point.record
        return {
            "workflow_id": self.workflow_id,
            "thread": self.start.point.thread,
            "checkpoint": record.sequence,
            "branch": record.branch,
            "sha256": record.sha256,
            "at": record.timestamp,
            "last": (record.outputs.message or {}).get("text", ""),
            "inherited": [_effect(each) for each in self.effects if not each.after],
            "undone": [_effect(each) for each in self.undone],
            "after": [{**_effect(each), **self._undo(each)} for each in self.effects if each.after],
            "versions": {"then": record.versions, "now": self.now},
        }

    def _undo(self, effect: PastEffect) -> dict[str, str | None]:
        """The command that undoes it, or why there is none."""
        if effect.record.tool not in self.undoable:
            return {"undo": None, "why_not": "its tool has no compensation"}
        if effect.record.status != "COMMITTED":
            return {"undo": None, "why_not": f"it is {effect.record.status}"}
        owner = _owner(effect, self.start.point.thread, self.workflow_id)
        if owner not in self.open_runs:
            return {"undo": None, "why_not": f"{owner} has ended, and only a run that is open undoes what it did"}
        body = {"operation_id": effect.record.operation_id, "by": "YOUR-NAME"}
        return {"undo": command(owner, "compensate", body), "why_not": None}


def _owner(effect: PastEffect, thread: str, workflow_id: str) -> str:
    return workflow_id if effect.thread == thread else effect.thread.rpartition(".")[0]


async def _open(client: Client, workflow_ids: Iterable[str]) -> set[str]:
    """Those of these runs that are open. Raises RPCError."""

    async def one(workflow_id: str) -> bool:
        try:
            return (await client.get_workflow_handle(workflow_id).describe()).close_time is None
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return False

    wanted = sorted(set(workflow_ids))
    return {each for each, is_open in zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True) if is_open}


def _effect(effect: PastEffect) -> dict[str, Any]:
    record = effect.record
    request = record.canonical_request
    return {
        "operation_id": record.operation_id,
        "tool": record.tool,
        "status": record.status,
        "external_id": record.external_id,
        "request": request.get("arguments", request) if isinstance(request, dict) else request,
        "at": record.committed_at or record.prepared_at,
    }


async def report(client: Client, settings: Settings, wanted: ForkInput, bundle: str | None) -> Report:
    """What a fork would begin with. Raises InvalidInput, as its start would, and UnknownBundle."""
    world = await make_world(client, settings)
    try:
        start = await _start(world, client, wanted)
        record, known = start.point.record, start.known(start.edited(await _answers(world, start), wanted.edits))
        effects = await past_effects(world.store, world.ledger, start.point.thread, known)
        undone = await past_effects(world.store, world.ledger, start.point.thread, known, undone=True)
        digest = record.versions["bundle_digest"]
        if bundle is None:
            manifest = await world.bundles.manifest(digest)
        else:
            ref, manifest = await world.bundles.look(bundle, world.specs)
            digest = ref.digest
        now = manifest.versions(digest, settings.build_id)
        tools = {each.name for each in world.registry.match(["*"]) if each.compensate_fn is not None}
        source = workflow_of(wanted.workflow_id, start.point.thread)
        thread = start.point.thread
        there = await _open(client, (_owner(each, thread, source) for each in effects if each.after))
        return Report(start, source, effects, [each for each in undone if not each.after], tools, there, now)
    finally:
        await _close(world)


async def context(client: Client, settings: Settings, wanted: ForkInput) -> Messages:
    """The messages that edits refer to. Raises InvalidInput."""
    world = await make_world(client, settings)
    try:
        start = await _start(world, client, wanted)
        return start.said(await _answers(world, start))
    finally:
        await _close(world)


def fork_input(value: dict[str, Any]) -> ForkInput:
    """The checkpoint and the edits out of a run's input, all of which is checked as its start does. Raises Refused."""
    try:
        check_fields(RunInput.model_validate(value))
        return wanted_of(value)
    except ValidationError as error:
        raise Refused(f"fork: {explain(error)}") from None
    except ValueError as error:
        raise Refused(f"fork: {error}") from None


async def _start(world: World, client: Client, wanted: ForkInput) -> Start:
    sources = Sources(world.store, world.checkpoints, world.segments)
    point = await sources.point(wanted.workflow_id, wanted.checkpoint, wanted.branch)
    return await load_start(world, client, wanted.workflow_id, point)


async def _answers(world: World, start: Start) -> Messages:
    items = [item for item in start.settled.values() if item.ref is not None]
    answers = await world.entries.get_all(start.point.thread, [item.ref.sha256 for item in items if item.ref])
    texts = [
        {"role": "tool", "call": item.call, "tool": item.tool, "text": item.text}
        for item in start.settled.values()
        if item.ref is None
    ]
    order = list(start.settled)
    return sorted([*answers, *texts], key=lambda each: order.index(str(each["call"])))


async def _close(world: World) -> None:
    await world.gateway.close()
    world.executor.close()
