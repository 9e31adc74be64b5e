"""What a run may delegate: the bundle's limits, the slice that a call asks for, and starting a sub-agent for it."""

from dataclasses import dataclass
from typing import Any

from temporalio import activity

from activities.children import find_child, start_child
from activities.manifest import Manifest
from activities.opening import person_of
from activities.tools import Tool, ToolError
from activities.world import World
from workflows.catalog import TOOLS_QUEUE_SUFFIX
from workflows.child_records import ChildStart
from workflows.keys import child_id
from workflows.lineage import DELEGATE, Limits, Parent, Terms
from workflows.records import TurnRequest


def no_room(request: TurnRequest, manifest: Manifest, tool: str, index: int, numbers: dict[str, int]) -> str | None:
    """Why the turn has no room for one more call: for any, or for one more sub-agent after those that `numbers`
    counts."""
    if index >= (most := manifest.file.limits.calls_per_turn):
        return f"Only {most} calls are run in one turn; call again. The call was not run."
    if tool != DELEGATE:
        return None
    if request.depth_left <= 0:
        return "Sub-agents of this run may have none below themselves (limit: depth). None was started."
    most = manifest.file.limits.fan_out
    if numbers.get(tool, 0) - request.numbers.get(tool, 0) >= most:
        return f"Only {most} sub-agents work at once (limit: fan_out); call again when these are done. It was not run."
    return None


def wants(tool: str, final: dict[str, Any]) -> Limits | None:
    """The budget that a call asks for its sub-agent; None for any other call."""
    if tool != DELEGATE:
        return None
    return Limits.model_validate(final.get("budget") or {})


@dataclass(frozen=True)
class Delegates:
    """Starts the sub-agent of one call. Handed to the tool `delegate`, and to no other."""

    world: World
    client: Any
    queue: str
    bundle: str
    digest: str
    workflow_id: str
    terms: Terms

    async def start(self, operation: str, arguments: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Starts it, or finds it started. Raises ToolError where its id belongs to another run."""
        wanted = await self._wanted(operation, arguments, options)
        child = await start_child(self.client, wanted, self.queue, self.world.has_search_attributes)
        return child.model_dump(mode="json")

    async def find(self, operation: str, arguments: dict[str, Any], options: dict[str, Any]) -> dict[str, Any] | None:
        """The same one, if it was started."""
        child = await find_child(self.client, await self._wanted(operation, arguments, options))
        return None if child is None else child.model_dump(mode="json")

    async def stop(self, child: str) -> None:
        """Asks it to cancel. Raises ToolError when it has ended."""
        described = await self.client.get_workflow_handle(child).describe()
        if described.close_time is not None:
            raise ToolError(f"{child} has ended; what it did is undone by `compensate` in its own run")
        await self.client.get_workflow_handle(child).cancel(reason="undone by its parent")

    async def _wanted(self, operation: str, arguments: dict[str, Any], options: dict[str, Any]) -> ChildStart:
        grant = self.terms.grant.model_dump(exclude_none=True)
        on_close = options.get("on_close", "cancel")
        given = {name: arguments[name] for name in ("goal", "inputs") if arguments.get(name)}
        by = self.terms.requester or await self._starter()
        return ChildStart(
            child=child_id(operation),
            given={
                **given,
                "bundle": arguments.get("bundle") or self.bundle,
                **({} if arguments.get("bundle") else {"bundle_digest": self.digest}),
                "budget": {**grant, "wait": 0},
                **({"by": by} if by else {}),
            },
            parent=Parent(
                workflow_id=self.workflow_id,
                run=self.terms.run,
                depth_left=self.terms.depth_left - 1,
                on_close=on_close,
            ),
            on_close=on_close,
        )

    async def _starter(self) -> str:
        """Who started the parent, as the client that did it says of itself."""
        handle = self.client.get_workflow_handle(self.workflow_id, run_id=self.terms.run or None)
        async for event in handle.fetch_history_events(page_size=1):
            return person_of(event.workflow_execution_started_event_attributes.identity)
        return ""


def delegates_for(world: World, tool: Tool, manifest: Manifest, digest: str, terms: Terms | None) -> Delegates | None:
    """What the tool `delegate` starts sub-agents with. `digest`: of the manifest, which one of the same bundle gets."""
    if tool.name != DELEGATE:
        return None
    info = activity.info()
    return Delegates(
        world=world,
        client=activity.client(),
        queue=info.task_queue.removesuffix(TOOLS_QUEUE_SUFFIX),
        bundle=f"{manifest.name}@{manifest.version}",
        digest=digest,
        workflow_id=str(info.workflow_id),
        terms=terms or Terms(),
    )
