"""The gate before every execution: what would run is held against what was decided, where the effect is."""

import json
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.canonical import short_arguments
from activities.delegating import delegates_for
from activities.judge import SHOWN_ARGUMENTS, final_arguments, fingerprint, ruling, summarize
from activities.manifest import Manifest, ToolSpec
from activities.noting import note
from activities.policy import limits_of, recovery_effect
from activities.tools import Operation, Registry, Tool
from activities.world import MEMORY_TOOLS, World
from workflows.keys import branched_id
from workflows.records import Call, ToolRequest


@dataclass(frozen=True)
class Gated:
    """A call that may run. `limit`: how long it may take as it was judged, by which the run waits for an attempt."""

    manifest: Manifest
    spec: ToolSpec
    tool: Tool
    op: Operation
    limit: float

    @property
    def seconds(self) -> float:
        """How long it may take. A deploy that gave the tool more time does not do so for calls judged before it: their
        leases would outlive the attempts that wait for them."""
        return min(self.tool.seconds(dict(self.op.arguments)), self.limit)


class Changed(Exception):
    """What would run is not what was decided: another default or another tool came with a deploy. `call` is what it is
    now, for a person to decide on; `gated` is what would run."""

    def __init__(self, gated: Gated, call: Call) -> None:
        super().__init__("what would run is not what was decided")
        self.gated, self.call = gated, call


class Gate:
    """Lets a call through or not. Policy, approval and fingerprint are checked here again, from the pinned bundle."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def open(self, request: ToolRequest) -> Gated:
        """Raises ValueError that says why the call may not run, and Changed."""
        manifest = await self._world.bundles.manifest(request.bundle)
        note(versions=manifest.versions(request.bundle, self._world.build_id))
        spec = manifest.tool(request.call.tool)
        if spec is None:
            raise ValueError(f"The tool {request.call.tool} is not in this bundle. It was not run")
        final = final_arguments(self._world.registry, spec, await self._arguments(request))
        self.check(manifest, self._world.registry, spec, final, request)
        tool = self._world.registry.get(spec.name)
        assert tool is not None, "final_arguments refuses a tool that is gone"
        call = request.call
        gated = Gated(manifest, spec, tool, self.operation(manifest, tool, final, request), call.timeout)
        if call.fingerprint is not None:
            now = fingerprint(manifest, self._world.registry, spec, final, call.operation_id or "")
            if now != call.fingerprint:
                raise Changed(gated, _as_it_is(gated, self._world.registry, call, now))
        return gated

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

    @staticmethod
    def check(
        manifest: Manifest, registry: Registry, spec: ToolSpec, final: dict[str, Any], request: ToolRequest
    ) -> None:
        """Raises ValueError for what policy denies, nobody approved, or is not what was decided."""
        call = request.call
        decision, reason, _ = ruling(manifest, registry, spec, final)
        if decision == "deny":
            raise ValueError(f"Denied by policy ({reason}). It was not run")
        asked = decision == "ask" or call.decision != "allow"
        if asked and not request.approved_by:
            raise ValueError(f"Nobody approved this call ({reason}). It was not run")
        if call.effect != recovery_effect(manifest, spec, final):
            raise ValueError("The effect of this call is not what was recorded. It was not run")
        if call.effect == "read" and not asked:
            return
        if not call.fingerprint or not call.operation_id:
            raise ValueError("This call has no fingerprint, so nothing says what was decided. It was not run")

    def operation(self, manifest: Manifest, tool: Tool, final: dict[str, Any], request: ToolRequest) -> Operation:
        """What the tool is told of the call."""
        return Operation(
            operation_id=request.call.operation_id or f"{request.thread}:{tool.name}:{request.call.id}",
            tool=tool.name,
            thread=request.thread,
            workspace=self._world.workspaces.path(request.thread),
            arguments=final,
            attempt=activity.info().attempt,
            approved_by=request.approved_by,
            options=manifest.file.options.get(tool.name, {}),
            trailers=request.trailers,
            private_hosts=self._world.private_hosts,
            credentials={} if tool.local or tool.module == MEMORY_TOOLS else self._world.credentials,
            memory=self._world.memory_for(tool),
            starter=delegates_for(self._world, tool, manifest, request.bundle, request.terms),
        )


def renamed(gated: Gated, registry: Registry, request: ToolRequest) -> Call | None:
    """The call as the workflow may make it instead, under an id of its own branch; None when it has one already."""
    operation = branched_id(gated.op.operation_id, request.branch)
    if operation == gated.op.operation_id:
        return None
    call = request.call.model_copy(update={"operation_id": operation})
    print_of_it = fingerprint(gated.manifest, registry, gated.spec, dict(gated.op.arguments), operation)
    return _as_it_is(gated, registry, call, print_of_it)


def _as_it_is(gated: Gated, registry: Registry, call: Call, print_of_it: str) -> Call:
    """The call for a person to decide on anew, so with the limits of today too."""
    final = dict(gated.op.arguments)
    shown = short_arguments(final, SHOWN_ARGUMENTS)
    return call.model_copy(
        update={
            "fingerprint": print_of_it,
            "summary": summarize(gated.spec.name, final),
            "arguments": shown if isinstance(shown, dict) else None,
            "arguments_preview": shown if isinstance(shown, str) else None,
            **limits_of(registry, gated.spec, final),
        }
    )
