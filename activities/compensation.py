"""The activities `effect.plan` and `effect.undo`: undoing effects, through the ledger like any effect.

A compensation is an operation of its own, `<id>:undo`, of the class `once`: whether a tool's compensation may be
repeated, nobody has said. So one that fails in any way, or whose attempt dies, is a person's to judge.
"""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.ancestry import NOTHING_HAPPENED
from activities.attempts import Deed
from activities.canonical import digest
from activities.checkpoints import now_iso
from activities.context import tool_message
from activities.delegating import delegates_for
from activities.effect_records import ENDS, IN_DOUBT, Outcome, Prepared, State, allow
from activities.effects import Sandwich, Told, lease_of
from activities.execution import answer_of, claim, clean, settled, text_of
from activities.heartbeats import ages, heartbeats
from activities.ledger import Standing, shown
from activities.tools import Operation, Tool, ToolError
from activities.world import World
from workflows.catalog import EFFECT_PLAN, EFFECT_UNDO, LEASE_GRACE, TOOL_ATTEMPTS
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
        return (await self._plan(request)).model_copy(update={"branched": request.branched})

    async def _plan(self, request: UndoPlanRequest) -> UndoPlan:
        only = None if request.operation_id is None else (request.operation_id, undo_id(request.operation_id))
        standings = await self._world.ledger.standings(request.thread, only)
        found = [(held, each) for each in standings if (held := each.prepared) is not None]
        undos = {held.operation_id: each for held, each in found if held.undoes}
        undone = {operation: each.state for operation, each in undos.items()}
        if request.operation_id is not None:
            found = [(held, each) for held, each in found if held.operation_id == request.operation_id]
            if not found:
                return UndoPlan(refused=f"there is no operation {request.operation_id}")
        found.sort(key=_order, reverse=True)
        if request.left and found[0][1].state in IN_DOUBT:
            held, each = found[0]
            wait = max(claim.lease for claim in each.claims)
            ask = UndoStep(operation_id=held.operation_id, tool=held.tool, timeout=wait, doubt=True)
            return UndoPlan(steps=[ask], found=shown(held, each))
        happened = [held for held, each in found if each.state == "COMMITTED" and not held.undoes]
        able = [(held, step) for held in happened if (step := self._step(held)) is not None]
        steps = [_waiting(step, undos.get(undo_id(held.operation_id))) for held, step in able if _open(undone, held)]
        kept = [held.operation_id for held in happened if self._step(held) is None]
        one = found[0] if request.operation_id is not None else None
        return UndoPlan(
            steps=steps,
            kept=kept,
            over=[held.operation_id for held, _ in able if not _open(undone, held)],
            refused=None if steps else _refusal(found, kept, undone),
            found=None if one is None or one[1].state in NOTHING_HAPPENED else shown(*one),
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
        assert standing.prepared is not None, "what may be compensated was prepared"
        if request.step.doubt and standing.state != "COMPENSATED":
            closed = await self._close(request, standing.prepared)
            if closed.effect is None or closed.effect.status != "COMMITTED" or self._step(standing.prepared) is None:
                return closed
            standing = await self._world.ledger.standing(thread, operation)
        if standing.state != "COMPENSATED":
            allow(standing.state, "COMPENSATED", operation)
        sandwich = self._sandwich(request, standing)
        try:
            if request.doubt:
                await self._world.ledger.prepare(thread, _forgone(sandwich.record))
                ended = await sandwich.doubt(request.doubt)
            else:
                ended = await sandwich.perform(None if request.about == operation else request.resolution)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            raise clean(error) from None
        answer = await answer_of(self._world, sandwich, ended)
        effect = await self._world.ledger.view(thread, operation)
        return answer.model_copy(update={"effect": effect, "undoing": answer.effect})

    async def _close(self, request: UndoRequest, held: Prepared) -> ToolAnswer:
        """Brings an operation that a reset left in doubt to its end: by its look-up, or by a person's word. It is not
        made any more."""
        world, tool = self._world, self._world.registry.get(held.tool)
        told = request.resolution if request.about == held.operation_id else None

        async def look() -> Any:
            assert tool is not None
            assert tool.lookup_fn is not None
            op = replace(await self._operation(tool, request, held), idempotency_key=held.idempotency_key)
            try:
                return await world.executor.call(tool.lookup_fn, op, seconds=tool.timeout, effect=False)
            except ToolError as error:
                raise Told(world.redact(f"the look-up cannot tell: {error}")) from None

        sandwich = Sandwich(
            ledger=world.ledger,
            thread=request.thread,
            record=held.model_copy(update={"claim": claim(held.claim.lease)}),
            deed=Deed(_nothing_more, look if tool is not None and tool.lookup_fn is not None else None, 0.0),
            on_unknown="review",
            answer=lambda text, result: self._reply(request.thread, held, text, result),
            to_text=lambda value: text_of(world, request.thread, value),
            redact=world.redact,
            last=bool(request.doubt) or activity.info().attempt >= TOOL_ATTEMPTS,
            stopped=activity.is_cancelled,
            ages=ages(),
        )
        try:
            ended = await (sandwich.doubt("a reset left it") if told is None else sandwich.close(told))
        except Exception as error:  # noqa: BLE001 - whatever a look-up raises
            raise clean(error) from None
        return await answer_of(world, sandwich, ended)

    async def _reply(self, thread: str, held: Prepared, text: str, result: str | None) -> Ref:
        body = tool_message(held.call or "", held.tool, self._world.redact(text))
        if result is not None:
            body["result"] = self._world.redact(result)
        return await self._world.entries.put(thread, body, str(body["text"]))

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
            ages=ages(),
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


def _waiting(step: UndoStep, before: Standing | None) -> UndoStep:
    """The step with the time that an attempt before it may have had: whoever goes on from that waits out its lease."""
    if before is None:
        return step
    longest = max(claim.lease for claim in before.claims) - LEASE_GRACE
    return step.model_copy(update={"timeout": max(step.timeout, longest)})


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


async def _nothing_more() -> None:
    raise AssertionError("an operation that was left is not made any more")


async def _nothing(value: Any) -> str:
    return "undone"
