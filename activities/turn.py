"""The activity `model.turn`: load the context, ask the model, judge its answer, publish the checkpoint.

The checkpoint is the commit of the turn. An attempt that finds it returns what it says: nothing is paid for twice.
"""

import asyncio
import time
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import compaction
from activities.ancestry import brief, fact
from activities.canonical import digest
from activities.checkpoints import Checkpoint, Inputs, Outputs, now_iso, same_request
from activities.context import Messages, check, user_message
from activities.errors import CheckpointDamaged, ContextOverflow, Failure
from activities.heartbeats import heartbeats
from activities.judge import Bench
from activities.manifest import Manifest
from activities.noting import note
from activities.patience import crashed, failed
from activities.reading import read_reply
from activities.reply import Ask, Reply
from activities.sessions import beginning, fullness
from activities.streaming import StreamWriter
from activities.trail import Trail
from activities.world import World
from workflows.catalog import MODEL_TURN
from workflows.keys import checkpoint_key
from workflows.records import EffectRecord, Ref, Turn, TurnRequest

ATTEMPT_SECONDS = 780.0
"""The whole time of one attempt at a turn, all routes and quick retries: within the activity's own limit."""


class TurnActivities:
    """Takes turns."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=MODEL_TURN.name)
    async def turn(self, request: TurnRequest) -> Turn:
        """One turn. Raises the model's failures (see `activities.errors`), CheckpointDamaged, CheckpointConflict."""
        try:
            async with heartbeats():  # a long run takes its time to load
                return await self._turn(request)
        except (ApplicationError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - it must end some time, with a name
            raise await crashed(self._world.store, request, error) from None

    async def _turn(self, request: TurnRequest) -> Turn:
        refs, new = await self._world.contexts.store_items(request.thread, request.new)
        asked = request_digest(request, refs)
        found = await self._world.checkpoints.find(request.thread, request.branch, request.turn)
        if found is not None:
            same_request(found, asked)
            note(recorded=True, versions=found.versions)
            return recorded_turn(found)
        abandoned = await self._world.ancestry.abandoned(request)
        if told := [effect for effect in abandoned if effect.operation_id not in request.abandoned]:
            body = user_message(fact(told))
            refs.append(await self._world.entries.put(request.thread, body, body["text"]))
            new.append(body)
        files = await self._world.workspaces.fold(request.thread, request.files)
        manifest = await self._world.bundles.manifest(request.bundle)
        note(versions=manifest.versions(request.bundle, self._world.build_id))
        begun = None if request.base is None else await beginning(self._world.entries, request.thread, request.base)
        before = await self._world.contexts.load(request.thread, request.head) if begun is None else begun.messages
        context = [*before, *new]
        check(context)
        if begun is not None:
            refs = [*begun.refs, *refs]
        elif (said := await fullness(self._world, manifest, request, context, new)) is not None:
            return Turn(head=request.head, kind="full", text=said, boundary=manifest.file.session.boundary)
        trail = await Trail.load(self._world.store, request)
        try:
            reply = await self._ask(request, manifest, context, trail)
        except Failure as error:
            ends = failed(error, trail, manifest.file.model[0].unavailable_after)
            await trail.save(self._world.store, request)
            raise ends from None
        turn, message = await self._read(request, manifest, context, reply, trail, abandoned)
        if files != request.files:
            turn = turn.model_copy(update={"files": files})
        record = self._record(request, refs, asked, turn, message, manifest)
        record.inputs.files, record.base = files, begun is not None
        added = sum(ref.bytes for ref in refs)
        return recorded_turn(await self._world.contexts.commit(record, request.head, context, added))

    async def _read(
        self,
        request: TurnRequest,
        manifest: Manifest,
        context: Messages,
        reply: Reply,
        trail: Trail,
        abandoned: list[EffectRecord],
    ) -> tuple[Turn, dict[str, Any] | None]:
        world, left = self._world, {effect.operation_id: effect for effect in abandoned}
        bench = Bench(
            *(request, manifest, world.registry, world.entries, world.ledger, world.ancestry, context, reply.cut, left)
        )
        turn, message = await read_reply(reply, bench, context, trail.usage)
        if set(left) != set(request.abandoned):
            turn = turn.model_copy(update={"abandoned": [brief(effect) for effect in left.values()]})
        if request.branched:
            turn = turn.model_copy(update={"branched": True})
        if message is not None and trail.compaction is not None:
            message["compaction"] = trail.compaction
        return turn, message

    async def _ask(self, request: TurnRequest, manifest: Manifest, context: Messages, trail: Trail) -> Reply:
        """The reply; a context that is too long is made smaller once, and asked with once more."""
        until, most = time.monotonic() + ATTEMPT_SECONDS, manifest.file.limits.tool_output
        prefix = f"{trail.requests:04d}-{activity.info().attempt:04d}"
        routes = manifest.file.model
        secrets = self._world.gateway.secrets_of(routes)
        sink = StreamWriter(self._world.store, request.thread, request.branch, request.turn, prefix, secrets)

        async def ask() -> Reply:
            shown, shorter = compaction.compacted(context)
            if trail.compaction is not None:
                shown, shorter = compaction.apply(context, trail.compaction), trail.compaction["tool_output"]
            question = Ask(
                manifest.prompt,
                shown,
                manifest.tools,
                min(most, shorter or most),
                context[0].get("output_schema"),
            )
            return await self._world.router.reply(routes, question, trail, until, sink, routes[0].unavailable_after)

        try:
            reply = await ask()
        except ContextOverflow as error:
            if trail.compaction is not None:
                raise
            trail.compaction = compaction.plan(context, most, str(error.details[0]) if error.details else "")
            if trail.compaction is None:
                raise
            reply = await ask()
        await sink.flush(end=True)
        return reply

    def _record(
        self,
        request: TurnRequest,
        refs: list[Ref],
        asked: str,
        turn: Turn,
        message: dict[str, Any] | None,
        manifest: Manifest,
    ) -> Checkpoint:
        head = request.head
        return Checkpoint(
            thread=request.thread,
            branch=request.branch,
            sequence=request.turn,
            parent={"key": checkpoint_key(request.thread, head.branch, head.sequence), "sha256": head.sha256},
            step_id=f"turn-{request.turn}",
            inputs=Inputs(entries=[ref.sha256 for ref in refs], request_digest=asked),
            outputs=Outputs(message=message, turn=turn.model_dump(mode="json", exclude_defaults=True)),
            effects=[call.fingerprint for call in turn.calls if call.fingerprint],
            versions=manifest.versions(request.bundle, self._world.build_id),
            usage=turn.usage,
            timestamp=now_iso(),
        )


def request_digest(request: TurnRequest, refs: list[Ref]) -> str:
    """What makes two attempts the same turn: the head, what is new, and the bundle."""
    return digest([request.head.sha256, [ref.sha256 for ref in refs], request.bundle, request.turn, request.base])


def recorded_turn(found: Checkpoint) -> Turn:
    """The turn that a checkpoint recorded. Raises CheckpointDamaged when it holds none."""
    try:
        turn = Turn.model_validate(found.outputs.turn)
    except ValidationError:
        raise CheckpointDamaged(f"checkpoint {found.sequence} of {found.thread} holds no turn") from None
    return turn.model_copy(update={"head": found.head(), "bytes": found.size, "at": found.timestamp})
