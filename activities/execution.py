"""The activities `tool.run`, `tool.read` and `effect.doubt`: every execution of a tool passes the gate here, again."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempts import Attempt, Deed, Ended, Stopped
from activities.canonical import preview
from activities.checkpoints import now_iso
from activities.children import started
from activities.context import tool_message
from activities.effect_records import Claim, Outcome, Prepared
from activities.effects import Sandwich, Told, lease_of
from activities.errors import Failure, cut
from activities.gate import Changed, Gate, Gated, renamed
from activities.heartbeats import ages, heartbeats
from activities.judge import digest_request
from activities.tools import ToolError
from activities.tools.bodies import to_text
from activities.world import World
from workflows.catalog import EFFECT_DOUBT, TOOL_ATTEMPTS, TOOL_READ, TOOL_RUN
from workflows.records import Ref, ToolAnswer, ToolRequest, ToolStatus

PASSING_REFUSALS = frozenset({408, 409, 425, 429})
"""Refusals of an HTTP server that another try may not meet."""
BINARY = bytes | bytearray | memoryview


class ToolActivities:
    """Runs one judged call."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._gate = Gate(world)

    @activity.defn(name=TOOL_READ.name)
    async def read(self, request: ToolRequest) -> ToolAnswer:
        """A quick read, inside the workflow task. Fails where it is not quick; then `tool.run` does it."""
        return await self._run(request)

    @activity.defn(name=TOOL_RUN.name)
    async def run(self, request: ToolRequest) -> ToolAnswer:
        """Any tool. An effect goes through the ledger."""
        async with heartbeats():
            if request.call.effect == "read":
                return await self._run(request)
            return await settled(self._run(request))

    @activity.defn(name=EFFECT_DOUBT.name)
    async def doubt(self, request: ToolRequest) -> ToolAnswer:
        """Puts on record that no attempt is left, once none can be alive any more. Nothing is run."""
        async with heartbeats():
            return await self._run(request)

    async def _run(self, request: ToolRequest) -> ToolAnswer:
        try:
            gated = await self._gate.open(request)
        except ValueError as error:
            return await self._refuse(request, str(error))
        except Changed as changed:
            begun = await self._begun(request)
            if begun is None:
                return ToolAnswer(status="changed", reason=str(changed), renamed=changed.call)
            if begun.request_digest != digest_request(changed.gated.spec, dict(changed.gated.op.arguments)):
                return await self._refuse(request, "the tool has changed since, so that request cannot be made again")
            gated = changed.gated
        await self._world.workspaces.restore(request.thread, request.files, request.head.sha256)
        if request.call.effect == "read":
            return await self._read(gated, request)
        record = self._prepared(gated, request)
        sandwich = self._sandwich(record, self._deed(gated), request)
        sandwich = replace(sandwich, on_unknown=gated.spec.on_unknown)
        answer = await self._ended(sandwich, request)
        if answer.status != "taken":
            return answer
        other = renamed(gated, self._world.registry, request)
        if other is not None and other.operation_id is not None:
            await self._world.ancestry.note(request.thread, other.operation_id, record.request_digest)
        return answer.model_copy(update={"renamed": other})

    async def _begun(self, request: ToolRequest) -> Prepared | None:
        """What an earlier attempt prepared that came through the gate as it was decided: it may have acted."""
        held = await self._world.ledger.prepared(request.thread, request.call.operation_id or "none")
        return held if held is not None and held.fingerprint == request.call.fingerprint else None

    async def _refuse(self, request: ToolRequest, reason: str) -> ToolAnswer:
        """The gate is shut. That is an answer, unless an earlier attempt came through it: that one may have acted."""
        held = None if request.call.effect == "read" else await self._begun(request)
        if held is None:
            return await self._error(request, reason)

        async def refused() -> Any:
            raise ToolError(reason)

        record = held.model_copy(update={"claim": claim(held.claim.lease)})
        return await self._ended(self._sandwich(record, Deed(refused, None, 0.0), request), request)

    async def _read(self, gated: Gated, request: ToolRequest) -> ToolAnswer:
        tool, op, attempt = gated.tool, gated.op, activity.info().attempt
        try:
            value = await self._world.executor.run(tool, dict(op.arguments), op, gated.seconds)
            text = await text_of(self._world, request.thread, value)
        except ToolError as error:
            return await self._error(request, f"Error: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            if attempt < TOOL_ATTEMPTS and not activity.info().is_local and not lasting(error):
                raise clean(error) from None
            tries = f"failed after {attempt} attempts: " if attempt > 1 else ""
            return await self._error(request, f"Error: {tries}{type(error).__name__}: {error}")
        return ToolAnswer(status="done", answer=await self._answer(request, text))

    async def _ended(self, sandwich: Sandwich, request: ToolRequest) -> ToolAnswer:
        try:
            if request.doubt:
                ended = await sandwich.doubt(request.doubt)
            else:
                ended = await sandwich.perform(request.resolution)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            raise clean(error) from None
        return await answer_of(self._world, sandwich, ended)

    def _deed(self, gated: Gated) -> Deed:
        executor, tool, op = self._world.executor, gated.tool, gated.op
        lookup, seconds = tool.lookup_fn, gated.seconds

        async def look() -> Any:
            assert lookup is not None
            try:
                return await executor.call(lookup, op, seconds=seconds, effect=False)
            except ToolError as error:
                raise Told(self._world.redact(f"the look-up cannot tell: {error}")) from None

        return Deed(
            act=lambda: executor.run(tool, dict(op.arguments), op, seconds),
            look=None if lookup is None else look,
            timeout=seconds,
        )

    def _sandwich(self, record: Prepared, deed: Deed, request: ToolRequest) -> Sandwich:
        return Sandwich(
            ledger=self._world.ledger,
            thread=request.thread,
            record=record,
            deed=deed,
            on_unknown="review",
            answer=lambda text, result: self._answer(request, text, result),
            to_text=lambda value: text_of(self._world, request.thread, value),
            redact=self._world.redact,
            last=activity.info().attempt >= TOOL_ATTEMPTS,
            stopped=activity.is_cancelled,
            ages=ages(),
        )

    def _prepared(self, gated: Gated, request: ToolRequest) -> Prepared:
        spec, op = gated.spec, gated.op
        arguments = redacted(self._world, dict(op.arguments))
        return Prepared(
            operation_id=op.operation_id,
            tool=spec.name,
            effect=request.call.effect,
            canonical_request={"tool": spec.name, "arguments": arguments},
            request_digest=digest_request(spec, dict(op.arguments)),
            fingerprint=request.call.fingerprint or "",
            idempotency_key=op.idempotency_key,
            key_valid=spec.key_valid,
            approved_by=request.approved_by,
            prepared_at=now_iso(),
            claim=claim(lease_of(gated.seconds)),
            call=request.call.id,
        )

    async def _answer(self, request: ToolRequest, text: str, told: str | None = None) -> Ref:
        """Stores the body that answers the call. `told`: the result, where a person told it and `text` says more."""
        text = self._world.redact(text)
        body = tool_message(request.call.id, request.call.tool, text)
        if request.edited is not None:
            final = (await self._world.entries.get(request.thread, request.edited.sha256))["arguments"]
            shown = preview(json.dumps(final, ensure_ascii=False), 2000)
            note = f"[{request.approved_by} edited the arguments; it was called with {shown}]"
            body |= {"text": self._world.redact(f"{note}\n{text}"), "result": text}
        if request.call.effect != "read":  # before the outcome is on record, since another machine may go on from it
            await self._world.earlier.keep(request.thread, request.call.operation_id or "none")
            snapshot = await self._world.workspaces.snapshot(request.thread, request.files, request.head.sha256)
            body |= snapshot.body
            if remark := snapshot.remark():
                body |= {"text": body["text"] + remark, "result": text}
        if told is not None:
            body["result"] = self._world.redact(told)
        return await self._world.entries.put(request.thread, body, str(body["text"]))

    async def _error(self, request: ToolRequest, text: str) -> ToolAnswer:
        answer = await self._answer(request, cut(self._world.redact(text), 2000))
        return ToolAnswer(status="error", answer=answer, reason=answer.preview)


async def text_of(world: World, thread: str, value: Any) -> str:
    """A result as text; binary data is kept beside it, under the digest that the text names."""
    text, data = to_text(world.redact_data(bytes(value)) if isinstance(value, BINARY) else value)
    if data is not None:
        await world.entries.put_bytes(thread, data, text)
    return world.redact(text)


async def answer_of(world: World, sandwich: Attempt, ended: Ended) -> ToolAnswer:
    """How an attempt ended, for the workflow."""
    effect = await world.ledger.view(sandwich.thread, sandwich.operation)
    if ended == "taken":
        return ToolAnswer(status="taken", reason=f"{sandwich.operation} belongs to another request", effect=effect)
    if isinstance(ended, Outcome):
        body = await world.entries.get(sandwich.thread, ended.answer.sha256)
        child = started(sandwich.record.tool, body) if ended.status == "COMMITTED" else None
        status: ToolStatus = "error" if ended.error else "done"
        return ToolAnswer(status=status, answer=ended.answer, effect=effect, files=body.get("files"), child=child)
    return ToolAnswer(status="review", reason=ended.reason, effect=effect)


def claim(lease: float) -> Claim:
    """The first claim of the running attempt."""
    info = activity.info()
    token = f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}"
    return Claim(attempt=1, token=token, lease=lease, claimed_at=now_iso())


def redacted(world: World, value: Any) -> Any:
    """JSON without the credentials that this worker holds."""
    if isinstance(value, str):
        return world.redact(value)
    if isinstance(value, dict):
        return {key: redacted(world, item) for key, item in value.items()}
    return [redacted(world, item) for item in value] if isinstance(value, list) else value


async def settled(work: Coroutine[Any, Any, ToolAnswer]) -> ToolAnswer:
    """Lets an effect that has begun come to its end when the run is cancelled, reset or gone: its deadline bounds the
    wait, and a known outcome is worth more than a quick end. What has not begun does not begin any more. When the
    worker stops there is no time for that, and the next attempt finds out."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is None or details.worker_shutdown:
            task.cancel()
            await asyncio.wait({task}, timeout=1)
            raise
    try:
        return await task
    except ApplicationError as error:
        if error.type == Stopped.__name__:
            raise asyncio.CancelledError from None
        raise


def clean(error: Exception) -> Exception:
    """The error for the server's record: its kind only, since its text may hold what must not be in history. Only our
    own failures have words and types that a run may be steered by."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, Stopped):
        return ApplicationError("stopped before it began", type=Stopped.__name__)
    return ApplicationError(f"{type(error).__name__} in the tool", type="ToolFailed")


def lasting(error: Exception) -> bool:
    """Whether trying a read again cannot help: the tool says so, as Temporal's own failures do, or an HTTP server did
    (the error holds its response, as those of httpx and requests do)."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in PASSING_REFUSALS
    return refused or bool(getattr(error, "non_retryable", False))
