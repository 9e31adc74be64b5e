"""The activity `model.turn`: load the context, ask the model, judge its answer, publish the checkpoint.

The checkpoint is the commit of the turn. An attempt that finds it returns what it says: nothing is paid for twice.
"""

import time
from typing import Any

import jsonschema
from pydantic import ValidationError
from temporalio import activity

from activities.ancestry import brief, fact
from activities.canonical import digest, preview
from activities.checkpoints import Checkpoint, Inputs, Outputs, now_iso, same_request
from activities.context import Messages, check, user_message
from activities.errors import CheckpointDamaged, ModelTrouble, ModelUnavailable, cut
from activities.execution import heartbeats
from activities.gateway import Reply
from activities.judge import Bench, Judged
from activities.manifest import Manifest, Model
from activities.render import render, tools
from activities.sessions import beginning, fullness
from activities.world import World
from workflows.catalog import MODEL_TURN
from workflows.keys import checkpoint_key
from workflows.messages import decode_json, loads
from workflows.records import EffectRecord, Head, Ref, Turn, TurnKind, TurnRequest

OUTPUT_BYTES = 1_000_000
"""The most of a final answer that travels through history."""


class TurnActivities:
    """Takes turns."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=MODEL_TURN.name)
    async def turn(self, request: TurnRequest) -> Turn:
        """One turn. Raises the model's failures (see `activities.errors`), CheckpointDamaged, CheckpointConflict."""
        async with heartbeats(first_failure()):  # a long run takes its time to load
            return await self._turn(request)

    async def _turn(self, request: TurnRequest) -> Turn:
        refs, new = await self._world.contexts.store_items(request.thread, request.new)
        asked = request_digest(request, refs)
        found = await self._world.checkpoints.find(request.thread, request.branch, request.turn)
        if found is not None:
            same_request(found, asked)
            return recorded_turn(found)
        abandoned = await self._world.ancestry.abandoned(request)
        if told := [effect for effect in abandoned if effect.operation_id not in request.abandoned]:
            body = user_message(fact(told))
            refs.append(await self._world.entries.put(request.thread, body, body["text"]))
            new.append(body)
        files = await self._world.workspaces.fold(request.thread, request.files)
        manifest = await self._world.bundles.manifest(request.bundle)
        begun = None if request.base is None else await beginning(self._world.entries, request.thread, request.base)
        before = await self._world.contexts.load(request.thread, request.head) if begun is None else begun.messages
        context = [*before, *new]
        check(context)
        if begun is not None:
            refs = [*begun.refs, *refs]
        elif (said := await fullness(self._world, manifest, request, context, new)) is not None:
            return Turn(head=request.head, kind="full", text=said, boundary=manifest.file.session.boundary)
        reply = await self._ask(manifest.file.model, render(manifest, context), tools(manifest))
        turn, message = await self._judge(request, manifest, context, reply, abandoned)
        if files != request.files:
            turn = turn.model_copy(update={"files": files})
        record = self._record(request, refs, asked, turn, message, manifest)
        record.inputs.files, record.base = files, begun is not None
        added = sum(ref.bytes for ref in refs)
        return recorded_turn(await self._world.contexts.commit(record, request.head, context, added))

    async def _ask(self, routes: list[Model], messages: Messages, offered: list[dict[str, Any]]) -> Reply:
        """The first route's answer, with heartbeats that carry since when it has been failing."""
        route, since = routes[0], first_failure()
        try:
            async with heartbeats(since):
                return await self._world.gateway.ask(route, messages, offered)
        except ModelTrouble as error:
            failing_since = since or time.time()
            activity.heartbeat(failing_since)
            if time.time() - failing_since < route.unavailable_after:
                raise
            raise ModelUnavailable(
                f"{error.message}; failing for {time.time() - failing_since:.0f} s, longer than unavailable_after"
            ) from None

    async def _judge(
        self,
        request: TurnRequest,
        manifest: Manifest,
        context: Messages,
        reply: Reply,
        abandoned: list[EffectRecord],
    ) -> tuple[Turn, dict[str, Any] | None]:
        kind, judged, world = kind_of(reply), list[Judged](), self._world
        left = {effect.operation_id: effect for effect in abandoned}
        if kind == "calls":
            bench = Bench(
                *(request, manifest, world.registry, world.entries, world.ledger, world.ancestry, reply.cut, left)
            )
            judged = await bench.judge(reply.calls)
        output, structured, nudge = reply.refusal or reply.text, None, None
        if kind == "empty":
            nudge = (
                "Your last message was cut off at the output limit." if reply.cut else "Your last message was empty."
            )
            nudge += " Call a tool, or give your final answer."
        elif kind == "answer" and (schema := context[0].get("output_schema")) is not None:
            structured, nudge = read_structured(output, schema)
            kind = "empty" if nudge else "answer"
        turn = Turn(
            head=Head(branch=request.branch, sequence=request.turn, sha256=""),
            kind=kind,
            text=preview(output),
            calls=[each.call for each in judged],
            usage=reply.usage,
            model=reply.model,
            output=cut(output, OUTPUT_BYTES) if kind not in ("calls", "empty") else None,
            structured=structured,
            nudge=nudge,
            abandoned=[brief(effect) for effect in left.values()] if set(left) != set(request.abandoned) else None,
        )
        message = {"role": "assistant", "text": output, "calls": [each.message for each in judged]}
        return turn, message if output or judged else None

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


def kind_of(reply: Reply) -> TurnKind:
    """What a reply is. Calls decide, not the finish reason; but what a filter or a refusal stopped is not acted on."""
    if reply.refusal:
        return "refused"
    if reply.finish_reason == "content_filter":
        return "content_filtered"
    if reply.calls:
        return "calls"
    if not reply.text.strip() or reply.finish_reason == "length":
        return "empty"
    return "answer"


def read_structured(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The JSON of a final answer, out of a code fence if it stands in one; and what is wrong with it, if anything."""
    body = text.strip()
    if "```" in body:
        body = body.split("```")[1].removeprefix("json").strip()
    try:
        value = loads(body)
        jsonschema.validate(value, schema)
    except ValueError as error:
        return None, f"Your final answer is not JSON ({error}). Give one JSON value and nothing else."
    except jsonschema.ValidationError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "the value"
        return None, f"Your final answer does not satisfy the schema: {where}: {error.message[:300]}"
    return value, None


def first_failure() -> float | None:
    """Since when this turn's model requests have been failing, as the last attempt's heartbeat says (Unix time)."""
    details = activity.info().heartbeat_details
    since = decode_json(details[0]) if details else None
    return float(since) if isinstance(since, int | float) else None
