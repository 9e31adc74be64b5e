"""The activities `effect.plan` and `effect.undo`: undoing effects, through the ledger like any effect.

A compensation is an operation of its own, `<id>:undo`, of the class `once`: whether a tool's compensation may be
repeated, nobody has said. So one that fails in any way, or whose attempt dies, is a person's to judge.
"""

from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.ancestry import NOTHING_HAPPENED
from activities.attempts import Deed
from activities.canonical import digest
from activities.checkpoints import now_iso
from activities.delegating import delegates_for
from activities.effect_records import ENDS, Outcome, Prepared, State, allow
from activities.effects import Sandwich, Told, lease_of
from activities.execution import answer_of, claim, clean, heartbeats, settled
from activities.ledger import Standing, shown
from activities.tools import Operation, Tool, ToolError
from activities.world import World
from workflows.catalog import EFFECT_PLAN, EFFECT_UNDO, TOOL_ATTEMPTS
from workflows.keys import undo_id
from workflows.messages import explain
from workflows.records import Ref, ToolAnswer
from workflows.undoing_records import UndoPlan, UndoPlanRequest, UndoRequest, UndoStep

Found = list[tuple[Prepared, Standing]]


class CompensationActivities:
    """Undoes effects."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=EFFECT_PLAN.name)
    async def plan(self, request: UndoPlanRequest) -> UndoPlan:
        """What can be undone, or is in doubt of being undone, the last effect first."""
        standings = await self._world.ledger.standings(request.thread)
        found = [(held, each) for each in standings if (held := each.prepared) is not None]
        undone = {held.operation_id: each.state for held, each in found if held.undoes}
        if request.operation_id is not None:
            found = [(held, each) for held, each in found if held.operation_id == request.operation_id]
            if not found:
                return UndoPlan(refused=f"there is no operation {request.operation_id}", branched=request.branched)
        found.sort(key=_order, reverse=True)
        happened = [held for held, each in found if each.state == "COMMITTED" and not held.undoes]
        steps = [step for held in happened if (step := self._step(held)) and _open(undone, held)]
        kept = [held.operation_id for held in happened if self._step(held) is None]
        one = found[0] if request.operation_id is not None else None
        return UndoPlan(
            steps=steps,
            kept=kept,
            refused=None if steps else _refusal(found, kept, undone),
            found=None if one is None or one[1].state in NOTHING_HAPPENED else shown(*one),
            branched=request.branched,
        )

    def _step(self, held: Prepared) -> UndoStep | None:
        tool = self._world.registry.get(held.tool)
        if tool is None or tool.compensate_fn is None:
            return None
        return UndoStep(operation_id=held.operation_id, tool=tool.name, timeout=tool.timeout)

    @activity.defn(name=EFFECT_UNDO.name)
    async def undo(self, request: UndoRequest) -> ToolAnswer:
        """Undoes one operation. `review`: nobody knows whether it worked."""
        async with heartbeats():
            return await settled(self._undo(request))

    async def _undo(self, request: UndoRequest) -> ToolAnswer:
        thread, operation = request.thread, request.step.operation_id
        standing = await self._world.ledger.standing(thread, operation)
        if standing.state != "COMPENSATED":
            allow(standing.state, "COMPENSATED", operation)
        assert standing.prepared is not None, "what may be compensated was prepared"
        sandwich = self._sandwich(request, standing)
        try:
            if request.doubt:
                await self._world.ledger.prepare(thread, _forgone(sandwich.record))
                ended = await sandwich.doubt(request.doubt)
            else:
                ended = await sandwich.perform(request.resolution)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            raise clean(error) from None
        answer = await answer_of(self._world, sandwich, ended)
        effect = await self._world.ledger.view(thread, operation)
        return answer.model_copy(update={"effect": effect, "undoing": answer.effect})

    def _sandwich(self, request: UndoRequest, standing: Standing) -> Sandwich:
        held, tool = standing.prepared, self._world.registry.get(request.step.tool)
        assert held is not None
        return Sandwich(
            ledger=self._world.ledger,
            thread=request.thread,
            record=undoing(held, request.step),
            deed=Deed(lambda: self._act(tool, request, standing), None, request.step.timeout),
            on_unknown="review",
            answer=lambda text, _: self._note(request, text),
            to_text=_nothing,
            last=activity.info().attempt >= TOOL_ATTEMPTS,
            stopped=activity.is_cancelled,
        )

    async def _act(self, tool: Tool | None, request: UndoRequest, standing: Standing) -> None:
        """Calls the tool's compensation with the recorded result. A refusal goes to a person, not into the record."""
        held, outcome = standing.prepared, standing.outcome
        assert held is not None
        assert outcome is not None
        try:
            if tool is None or tool.compensate_fn is None:
                raise ToolError(f"this worker has no compensation for the tool {request.step.tool}")
            result = await self._result(tool, request.thread, outcome)
            op = await self._operation(tool, request, held)
            await self._world.workspaces.restore(request.thread, request.files, request.at)
            await self._world.earlier.fetch(request.thread, held.operation_id)
            await self._world.executor.call(tool.compensate_fn, op, result, seconds=request.step.timeout)
        except ToolError as error:
            raise Told(self._world.redact(f"it was not undone: {error}")) from None

    async def _result(self, tool: Tool, thread: str, outcome: Outcome) -> Any:
        """What the compensation goes by. Raises ToolError where a person knows no such thing, or another one."""
        if outcome.how == "person" and not outcome.told:
            raise ToolError(f"{outcome.by} confirmed that it happened without its result, which the undoing goes by")
        body = await self._world.entries.get(thread, outcome.answer.sha256)
        try:
            return tool.revive(str(body.get("result", body["text"])))
        except ValidationError as error:
            raise ToolError(f"its recorded result is not what the undoing goes by: {explain(error)}") from None

    async def _operation(self, tool: Tool, request: UndoRequest, held: Prepared) -> Operation:
        """The operation that is undone, with a key of the undoing's own."""
        manifest = await self._world.bundles.manifest(request.bundle)
        return Operation(
            operation_id=held.operation_id,
            idempotency_key=undo_id(held.operation_id),
            tool=tool.name,
            thread=request.thread,
            workspace=self._world.workspaces.path(request.thread),
            arguments=dict(held.canonical_request.get("arguments", {})),
            attempt=activity.info().attempt,
            approved_by=request.step.by,
            options=manifest.file.options.get(tool.name, {}),
            private_hosts=self._world.private_hosts,
            credentials=self._world.credentials,
            starter=delegates_for(self._world, tool, manifest, request.bundle, None),
        )

    async def _note(self, request: UndoRequest, text: str) -> Ref:
        text = self._world.redact(text)
        snapshot = await self._world.workspaces.snapshot(request.thread, request.files, request.at)
        return await self._world.entries.put(request.thread, {"role": "note", "text": text, **snapshot.body}, text)


def undoing(held: Prepared, step: UndoStep) -> Prepared:
    """The intent to undo an operation."""
    operation = undo_id(held.operation_id)
    request = {"undo": held.operation_id, "tool": held.tool, "arguments": held.canonical_request.get("arguments", {})}
    return Prepared(
        operation_id=operation,
        tool=held.tool,
        effect="once",
        canonical_request=request,
        request_digest=digest({"undo": held.request_digest, "of": held.operation_id}),
        fingerprint=f"fx:v1:{digest({'undo': held.fingerprint, 'operation_id': operation})}",
        idempotency_key=operation,
        key_valid=held.key_valid,
        approved_by=step.by,
        prepared_at=now_iso(),
        claim=claim(lease_of(step.timeout)),
        undoes=held.operation_id,
    )


def _forgone(record: Prepared) -> Prepared:
    """The intent of an attempt that is not this one: an undoing that never began is still a person's to judge."""
    return record.model_copy(update={"claim": record.claim.model_copy(update={"token": "none"})})


def _order(effect: tuple[Prepared, Standing]) -> tuple[list[int], str]:
    """By turn and call: workers' clocks differ. They only order what different paths did in one turn."""
    held, found = effect
    place = [int(part) for part in (held.call or "").split(".") if part.isdecimal()]
    return place, found.outcome.committed_at if found.outcome else ""


def _open(undone: dict[str, State], held: Prepared) -> bool:
    """Whether undoing it has not ended: one that is in doubt comes to a person again, before anything older."""
    return undone.get(undo_id(held.operation_id), "ABSENT") not in ENDS


def _refusal(found: Found, kept: list[str], undone: dict[str, State]) -> str:
    if kept:
        return f"nothing can be undone: the tools of {', '.join(kept[:5])} have no compensation"
    tried = [
        f"undoing {held.operation_id} was tried and is {undone[undo_id(held.operation_id)]}"
        for held, each in found
        if each.state == "COMMITTED" and not _open(undone, held)
    ]
    if tried:
        return f"{'; '.join(tried[-5:])}. It is tried once: undo it by hand"
    states = ", ".join(f"{held.operation_id} is {each.state}" for held, each in found[-5:])
    return f"there is nothing to undo: {states or 'this run has no effects'}"


async def _nothing(value: Any) -> str:
    return "undone"
