"""Which calls of a checkpoint's turn were settled, and with what answers: told from what came after it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError

from activities.canonical import preview
from activities.checkpoints import Checkpoint
from activities.errors import CheckpointDamaged
from activities.sessions import read_handoff, session_of
from activities.sources import Point
from activities.turn import recorded_turn
from activities.world import World
from workflows.keys import folder, thread_name
from workflows.records import Head, Item, Ref

ASKED_SECONDS = 5.0
"""How long an open run may take to say what it has settled. One that does not answer is taken by its ledger alone."""


async def settled_items(
    world: World, client: Client, workflow_id: str, point: Point, calls: Sequence[str]
) -> dict[str, Item]:
    """The answers by call id: from the next checkpoint, the handoff after it, the run itself if this is where it
    stands, and the ledger. What none of them knows is not settled. Raises CheckpointDamaged for a handoff that may be
    the one that knows."""
    if not calls:
        return {}
    found = await _recorded(world, point, calls)
    if point.after is None:
        found = await _asked(client, workflow_id, point, calls) | found
    return await _in_ledger(world, point, calls) | found


async def _recorded(world: World, point: Point, calls: Sequence[str]) -> dict[str, Item]:
    """From the entries that the next turn, or the handoff before it, began with."""
    if point.after is None:
        return {}
    found = await _among(world, point.thread, point.after.inputs.entries, calls)
    if point.after.base and len(found) < len(calls):
        found |= await _among(world, point.thread, await _handed_over(world, point), calls)
    return found


async def _among(world: World, thread: str, digests: Sequence[str], calls: Sequence[str]) -> dict[str, Item]:
    try:
        bodies = await world.entries.get_all(thread, digests)
    except CheckpointDamaged:
        return {}
    found = {}
    for digest, body in zip(digests, bodies, strict=True):
        if body.get("role") == "tool" and body.get("call") in calls:
            size = len(await world.entries.get_bytes(thread, digest))
            ref = Ref(sha256=digest, bytes=size, preview=preview(str(body["text"])))
            found[body["call"]] = Item(ref=ref, call=body["call"], tool=body["tool"])
    return found


async def _handed_over(world: World, point: Point) -> list[str]:
    """What was new when a session was handed over at this checkpoint: the next one begins without it."""
    broken: CheckpointDamaged | None = None
    for key in await world.store.keys(f"{folder(point.thread)}/handoffs"):
        try:
            record = await read_handoff(world.store, key) or {}
        except CheckpointDamaged as error:
            broken = error
            continue
        if record.get("facts", {}).get("checkpoint", {}).get("sha256") == point.record.sha256:
            return [str(each) for each in record.get("new", [])]
    if broken is not None:
        raise broken
    if point.after is not None and await _in_a_new_session(world, point.thread, point.record, point.after):
        raise CheckpointDamaged(f"the record of the handoff after checkpoint {point.record.sequence} is gone")
    return []


async def _in_a_new_session(world: World, thread: str, before: Checkpoint, after: Checkpoint) -> bool:
    """Whether a session was handed over between two checkpoints; a context that an edit began anew has no new one."""
    context = await world.contexts.load(thread, before.head())
    return session_of(await world.entries.messages(thread, after.inputs.entries)) > session_of(context)


async def _asked(client: Client, workflow_id: str, point: Point, calls: Sequence[str]) -> dict[str, Item]:
    """From the run itself, which alone knows what it was told since its last checkpoint: the start that is meant, if it
    is the newest of its id."""
    handle = client.get_workflow_handle(workflow_id)
    try:
        wait = timedelta(seconds=ASKED_SECONDS)
        first = (await handle.describe(rpc_timeout=wait)).raw_description.workflow_execution_info.first_run_id
        if thread_name(workflow_id, first) != point.thread:
            return {}
        told: dict[str, Any] = await handle.query("position", result_type=dict, rpc_timeout=wait)
        if Head.model_validate(told["head"]) != point.record.head():
            return {}
        items = [Item.model_validate(each) for each in told["answers"]]
    except (RPCError, TemporalError, ValidationError, TypeError, KeyError):
        return {}
    return {item.call: item for item in items if item.call is not None and item.call in calls}


async def _in_ledger(world: World, point: Point, calls: Sequence[str]) -> dict[str, Item]:
    """From the outcomes of the calls' operations."""
    found = {}
    for call in recorded_turn(point.record).calls:
        if call.id in calls and call.operation_id is not None and call.wants is None:  # a sub-agent answers later
            outcome = await world.ledger.outcome(point.thread, call.operation_id)
            held = await world.ledger.prepared(point.thread, call.operation_id)
            if outcome is not None and held is not None and held.call == call.id:
                found[call.id] = Item(ref=outcome.answer, call=call.id, tool=call.tool)
    return found
