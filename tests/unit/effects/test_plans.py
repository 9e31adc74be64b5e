"""Which effects are to be undone, and in which order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.compensation import CompensationActivities
from activities.effect_records import Outcome, Prepared
from activities.effects import lease_of
from activities.ledger import Ledger
from activities.store import LocalStore
from activities.tools import Operation, Registry, tool
from tests.unit.effects.stepped import THREAD, World
from workflows.keys import undo_id
from workflows.records import Ref
from workflows.undoing_records import UndoPlan, UndoPlanRequest


@tool(effect="once")
async def act(*, op: Operation) -> None:
    """Acts."""


@act.compensate
async def take_back(op: Operation, result: Any) -> None:
    """Takes it back."""


class Past:
    """A thread's ledger, written effect by effect."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(LocalStore(folder))
        registry = Registry([act])
        world = SimpleNamespace(ledger=self.ledger, registry=registry)
        self.activities = CompensationActivities(cast("Any", world))

    async def prepared(self, name: str, call: str = "1.0") -> Prepared:
        made = World("nothing", "once").record(name, name)
        record = made.model_copy(update={"operation_id": f"{THREAD}:{name}", "call": call})
        return (await self.ledger.prepare(THREAD, record))[0]

    async def committed(self, name: str, call: str, at: str) -> Prepared:
        record = await self.prepared(name, call)
        await self.end(record.operation_id, "COMMITTED", at)
        return record

    async def end(self, operation: str, status: Any, at: str = "2026-01-01") -> None:
        answer = Ref(sha256="0", bytes=0)
        outcome = Outcome(operation_id=operation, status=status, how="executed", answer=answer, committed_at=at)
        await self.ledger.finish(THREAD, outcome)

    async def plan(self, operation: str | None = None) -> UndoPlan:
        return await self.activities.plan(UndoPlanRequest(thread=THREAD, operation_id=operation))

    async def order(self) -> list[str]:
        return [step.operation_id.removeprefix(f"{THREAD}:") for step in (await self.plan()).steps]


async def test_effects_are_undone_by_turn_and_call_whatever_the_workers_clocks_say(tmp_path: Path) -> None:
    past = Past(tmp_path)
    await past.committed("act:1", "2.0", at="2026-01-01T12:00:09")  # by a worker whose clock is ahead
    await past.committed("act:2", "2.1", at="2026-01-01T12:00:00")
    await past.committed("act:3", "10.0", at="2026-01-01T12:00:01")
    assert await past.order() == ["act:3", "act:2", "act:1"]


@pytest.mark.parametrize("state", ["PREPARED", "IN_REVIEW", "COMMITTED", "SKIPPED"])
async def test_an_undoing_in_doubt_stays_in_the_plan_and_one_that_has_ended_does_not(
    state: str, tmp_path: Path
) -> None:
    past = Past(tmp_path)
    await past.committed("act:1", "1.0", at="2026-01-01T12:00:00")
    last = await past.committed("act:2", "2.0", at="2026-01-01T12:00:01")
    undo = {"operation_id": undo_id(last.operation_id), "undoes": last.operation_id}
    await past.ledger.prepare(THREAD, last.model_copy(update=undo))
    if state == "IN_REVIEW":
        await past.ledger.review(THREAD, undo_id(last.operation_id), "nobody knows", "now")
    elif state != "PREPARED":
        await past.end(undo_id(last.operation_id), state)
    in_doubt = state in ("PREPARED", "IN_REVIEW")
    assert await past.order() == (["act:2", "act:1"] if in_doubt else ["act:1"])
    only = await past.plan(last.operation_id)
    assert (only.refused is None) == in_doubt
    assert only.over == ([] if state in ("PREPARED", "IN_REVIEW", "COMMITTED") else [last.operation_id])


async def test_an_undoing_that_is_gone_on_from_has_the_time_that_the_one_before_had(tmp_path: Path) -> None:
    """A deploy gave the tool less time since: the lease on record has to fit into an attempt all the same."""
    past = Past(tmp_path)
    record = await past.committed("act:1", "1.0", at="2026-01-01T12:00:00")
    undo = {"operation_id": undo_id(record.operation_id), "undoes": record.operation_id}
    longer = record.claim.model_copy(update={"lease": lease_of(90.0)})
    await past.ledger.prepare(THREAD, record.model_copy(update={**undo, "claim": longer}))
    assert [step.timeout for step in (await past.plan()).steps] == [90.0]


@pytest.mark.parametrize(("state", "seen"), [("PREPARED", True), ("COMMITTED", True), ("NOT_EXECUTED", False)])
async def test_a_look_at_one_operation_tells_what_may_have_happened(state: str, seen: bool, tmp_path: Path) -> None:
    past = Past(tmp_path)
    record = await past.prepared("act:1")
    if state != "PREPARED":
        await past.end(record.operation_id, state)
    found = (await past.plan(record.operation_id)).found
    assert (found is not None and found.status == state) == seen
    assert (await past.plan(f"{THREAD}:act:9")).found is None
