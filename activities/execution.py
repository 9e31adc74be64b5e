"""The activities `tool.run` and `tool.read`: every execution of a tool passes here, and is checked here again."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.canonical import preview
from activities.checkpoints import now_iso
from activities.context import tool_message
from activities.effects import Sandwich, lease_of
from activities.errors import cut
from activities.judge import digest_request, final_arguments, fingerprint, ruling
from activities.ledger import Claim, Outcome, Prepared
from activities.manifest import Manifest, ToolSpec
from activities.policy import recovery_effect
from activities.tools import Operation, Tool, ToolError
from activities.tools.bodies import to_text
from activities.world import World
from workflows.catalog import TOOL_ATTEMPTS, TOOL_READ, TOOL_RUN
from workflows.records import Ref, ToolAnswer, ToolRequest

BEAT_SECONDS = 1.0


class ToolActivities:
    """Runs one judged call."""

    def __init__(self, world: World) -> None:
        self._world = world

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
            return await _settled(self._run(request))

    async def _run(self, request: ToolRequest) -> ToolAnswer:
        manifest = await self._world.bundles.manifest(request.bundle)
        spec = manifest.tool(request.call.tool)
        try:
            if spec is None:
                raise ValueError(f"The tool {request.call.tool} is not in this bundle")
            final = final_arguments(self._world.registry, spec, await self._arguments(request))
            self._check(manifest, spec, final, request)
        except ValueError as error:
            return await self._error(request, str(error))
        tool = self._world.registry.get(spec.name)
        assert tool is not None, "final_arguments refuses a tool that is gone"
        op = self._operation(manifest, tool, final, request)
        if request.call.effect == "read":
            return await self._read(tool, op, request)
        return await self._perform(manifest, spec, tool, op, request)

    async def _arguments(self, request: ToolRequest) -> dict[str, Any]:
        """The edited ones, or those of the call in the checkpoint: never the previews that history shows."""
        if request.edited is not None:
            return dict((await self._world.entries.get(request.thread, request.edited.sha256))["arguments"])
        checkpoint = await self._world.checkpoints.load(request.thread, request.head)
        calls = (checkpoint.outputs.message or {}).get("calls", [])
        text = next((call["arguments"] for call in calls if call["id"] == request.call.id), None)
        if text is None:
            raise ValueError(f"Call {request.call.id} is not in its checkpoint")
        return dict(json.loads(text))

    def _check(self, manifest: Manifest, spec: ToolSpec, final: dict[str, Any], request: ToolRequest) -> None:
        """The gate, again, where the effect is. Raises ValueError for what may not run."""
        decision, reason, _ = ruling(manifest, self._world.registry, spec, final)
        if decision == "deny":
            raise ValueError(f"Denied by policy ({reason}). It was not run")
        if decision == "ask" and not request.approved_by:
            raise ValueError(f"Nobody approved this call ({reason}). It was not run")
        wanted = request.call.fingerprint
        if wanted is not None and fingerprint(manifest, spec, final, request.call.operation_id or "") != wanted:
            raise ValueError("What would run is not what was decided: its fingerprint differs. It was not run")
        if request.call.effect != recovery_effect(manifest, spec, final):
            raise ValueError("The effect of this call is not what was recorded. It was not run")

    def _operation(self, manifest: Manifest, tool: Tool, final: dict[str, Any], request: ToolRequest) -> Operation:
        return Operation(
            operation_id=request.call.operation_id or f"{request.thread}:{tool.name}:{request.call.id}",
            tool=tool.name,
            thread=request.thread,
            workspace=self._world.workspace(request.thread),
            arguments=final,
            attempt=activity.info().attempt,
            approved_by=request.approved_by,
            options=manifest.file.options.get(tool.name, {}),
            private_hosts=self._world.private_hosts,
            credentials={} if tool.local else self._world.credentials,
        )

    async def _read(self, tool: Tool, op: Operation, request: ToolRequest) -> ToolAnswer:
        try:
            value = await self._world.executor.run(tool, dict(op.arguments), op, tool.timeout)
        except ToolError as error:
            return await self._error(request, f"Error: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            if activity.info().attempt < TOOL_ATTEMPTS and not activity.info().is_local:
                raise _clean(error) from None
            attempts = activity.info().attempt
            said = self._world.redact(f"{type(error).__name__}: {error}")
            return await self._error(request, f"Error: failed after {attempts} attempts: {cut(said, 500)}")
        return ToolAnswer(status="done", answer=await self._answer(request, self._text(value)))

    async def _perform(
        self, manifest: Manifest, spec: ToolSpec, tool: Tool, op: Operation, request: ToolRequest
    ) -> ToolAnswer:
        sandwich = Sandwich(
            ledger=self._world.ledger,
            executor=self._world.executor,
            tool=tool,
            op=op,
            record=self._prepared(manifest, spec, op, request),
            on_unknown=spec.on_unknown,
            write=lambda text: self._answer(request, text),
            to_text=self._text,
            last=activity.info().attempt >= TOOL_ATTEMPTS,
        )
        try:
            ended = await sandwich.perform(request.resolution)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            raise _clean(error) from None
        if ended == "taken":
            return ToolAnswer(status="taken", reason=f"{op.operation_id} belongs to another request")
        effect = await self._world.ledger.view(op.thread, op.operation_id)
        if isinstance(ended, Outcome):
            return ToolAnswer(status="error" if ended.error else "done", answer=ended.answer, effect=effect)
        return ToolAnswer(status="review", reason=ended.reason, effect=effect)

    def _prepared(self, manifest: Manifest, spec: ToolSpec, op: Operation, request: ToolRequest) -> Prepared:
        info = activity.info()
        final = dict(op.arguments)
        claim = Claim(
            attempt=1,
            token=f"{info.workflow_run_id}/{info.activity_id}/{info.attempt}",
            lease=lease_of(spec.timeout),
            claimed_at=now_iso(),
        )
        return Prepared(
            operation_id=op.operation_id,
            tool=spec.name,
            effect=request.call.effect,
            canonical_request={"tool": spec.name, "arguments": final},
            request_digest=digest_request(spec, final),
            fingerprint=fingerprint(manifest, spec, final, op.operation_id),
            idempotency_key=op.idempotency_key,
            key_valid=spec.key_valid,
            approved_by=request.approved_by,
            prepared_at=now_iso(),
            claim=claim,
        )

    def _text(self, value: Any) -> str:
        return self._world.redact(to_text(value)[0])

    async def _answer(self, request: ToolRequest, text: str) -> Ref:
        if request.edited is not None:
            final = (await self._world.entries.get(request.thread, request.edited.sha256))["arguments"]
            shown = preview(json.dumps(final, ensure_ascii=False), 2000)
            text = f"[{request.approved_by} edited the arguments; it ran with {shown}]\n{text}"
        body = tool_message(request.call.id, request.call.tool, text)
        return await self._world.entries.put(request.thread, body, text)

    async def _error(self, request: ToolRequest, text: str) -> ToolAnswer:
        answer = await self._answer(request, self._world.redact(text))
        return ToolAnswer(status="error", answer=answer, reason=answer.preview)


async def _settled(work: Coroutine[Any, Any, ToolAnswer]) -> ToolAnswer:
    """Lets an effect that has begun come to its end when the run is cancelled: its deadline bounds the wait. When the
    worker stops there is no time for that, and the next attempt finds out."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            return await task
        task.cancel()
        raise


def _clean(error: Exception) -> Exception:
    """The error for the server's record: its kind only, since its text may hold what must not be in history."""
    if isinstance(error, ApplicationError):
        return error
    return ApplicationError(f"{type(error).__name__} in the tool", type="ToolFailed")


@contextlib.asynccontextmanager
async def heartbeats(*details: Any) -> AsyncIterator[None]:
    """Says every second that this worker is alive."""

    async def beat() -> None:
        while True:
            activity.heartbeat(*details)
            await asyncio.sleep(BEAT_SECONDS)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
