"""Rules of identity and of the gate, one at a time."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activities.attempts import Deed
from activities.effect_records import ENDS, NEXT, IllegalTransition, Outcome, Review, allow
from activities.effects import Told
from activities.gate import Gate, Gated, renamed
from activities.judge import digest_request, fingerprint
from activities.ledger import Ledger
from activities.manifest import BundleFile, Manifest, Model, Rule, ToolSpec
from activities.store import LocalStore, open_store
from activities.tools import Operation, Registry, tool
from tests.unit.effects.stepped import OPERATION, THREAD, World
from workflows.keys import branched_id, request_key
from workflows.records import Call, Head, Ref, ToolRequest

SPEC = ToolSpec(name="pay", description="", parameters={}, effect="once", digest="d1")


def manifest(*rules: Rule, policy: str = "p1") -> Manifest:
    file = BundleFile(model=[Model(model="m")], policy=list(rules))
    digests = {"policy": policy}
    return Manifest(name="b", version="1", folder_digest="f", prompt="", file=file, tools=[SPEC], digests=digests)


def test_the_key_is_the_operation_s_own_and_the_same_in_every_attempt() -> None:
    keys = {
        Operation(
            operation_id=OPERATION, tool="pay", thread=THREAD, workspace=Path("w"), attempt=attempt
        ).idempotency_key
        for attempt in (1, 2, 3)
    }
    assert keys == {OPERATION}


def printed(pinned: Manifest, spec: ToolSpec, final: dict[str, Any], operation: str) -> str:
    """The fingerprint where the worker has no newer tool than the manifest."""
    return fingerprint(pinned, Registry(), spec, final, operation)


@pytest.mark.parametrize(
    "change",
    [
        lambda: printed(manifest(), SPEC, {"amount": 2}, OPERATION),
        lambda: printed(manifest(policy="p2"), SPEC, {"amount": 1}, OPERATION),
        lambda: printed(manifest(), SPEC.model_copy(update={"digest": "d2"}), {"amount": 1}, OPERATION),
        lambda: printed(manifest(), SPEC.model_copy(update={"name": "refund"}), {"amount": 1}, OPERATION),
        lambda: printed(manifest(), SPEC, {"amount": 1}, branched_id(OPERATION, "b1")),
    ],
    ids=["arguments", "policy", "schema", "tool", "operation"],
)
def test_a_fingerprint_changes_with_every_part_of_the_action(change: Callable[[], str]) -> None:
    assert change() != printed(manifest(), SPEC, {"amount": 1}, OPERATION)


def test_equal_requests_have_equal_digests_whatever_the_operation_and_the_order_of_arguments() -> None:
    assert digest_request(SPEC, {"a": 1, "b": 2}) == digest_request(SPEC, {"b": 2, "a": 1})
    assert digest_request(SPEC, {"a": 1}) != digest_request(SPEC, {"a": "1"})


def checked(call: dict[str, Any], approved_by: str | None = None, *rules: Rule) -> None:
    made = Call(id="1.0", tool="pay", effect="once", operation_id=OPERATION, **call)
    head = Head(branch="b", sequence=1, sha256="0")
    request = ToolRequest(thread=THREAD, branch="b", head=head, bundle="x", call=made, approved_by=approved_by)
    policy = rules or (Rule(tool="pay", decision="allow"),)
    Gate.check(manifest(*policy), Registry(), SPEC, {"amount": 1}, request)


RIGHT = printed(manifest(), SPEC, {"amount": 1}, OPERATION)


def test_the_gate_lets_what_was_decided_through() -> None:
    checked({"decision": "allow", "fingerprint": RIGHT})
    checked({"decision": "ask", "fingerprint": RIGHT}, "alice")


@pytest.mark.parametrize(
    ("call", "by", "said"),
    [
        ({"decision": "allow", "fingerprint": None}, None, "no fingerprint"),
        ({"decision": "allow", "fingerprint": ""}, None, "no fingerprint"),
        ({"decision": "ask", "fingerprint": RIGHT}, None, "Nobody approved"),
        ({"decision": "ask", "fingerprint": RIGHT}, "", "Nobody approved"),
    ],
)
def test_the_gate_is_shut_for_anything_else(call: dict[str, Any], by: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(call, by)


def test_the_gate_holds_policy_against_a_call_that_was_let_through() -> None:
    for decision, said in (("deny", "Denied by policy"), ("ask", "Nobody approved")):
        with pytest.raises(ValueError, match=said):
            checked({"decision": "allow", "fingerprint": RIGHT}, None, Rule(tool="pay", decision=decision))  # type: ignore[arg-type]


@tool(effect="once", timeout=120, writes=True)
async def pay(amount: int) -> None:
    """Pays."""


def test_a_call_keeps_the_time_it_was_judged_with_until_a_person_decides_on_it_anew() -> None:
    """Else its lease would outlive the attempts that wait for it, and the run would wait for ever."""
    registry, made = Registry(), Call(id="1.0", tool="pay", effect="once", decision="ask", timeout=2.0)
    registry.add(pay)
    op = Operation(operation_id=OPERATION, tool="pay", thread=THREAD, workspace=Path("w"), arguments={"amount": 1})
    gated = Gated(manifest(), SPEC, pay, op, made.timeout)
    assert gated.seconds == 2.0
    head = Head(branch="b", sequence=1, sha256="0")
    anew = renamed(gated, registry, ToolRequest(thread=THREAD, branch="b", head=head, bundle="x", call=made))
    assert anew is not None
    assert (anew.timeout, anew.writes, anew.operation_id) == (120, True, branched_id(OPERATION, "b"))
    assert replace(gated, limit=anew.timeout).seconds == 120


def test_only_the_steps_of_the_table_are_allowed() -> None:
    for state, following in NEXT.items():
        for wanted in NEXT:
            if wanted in following:
                allow(state, wanted, "x")
            else:
                with pytest.raises(IllegalTransition):
                    allow(state, wanted, "x")
    assert all(not NEXT[end] - {"COMPENSATED"} for end in ENDS)


async def test_an_illegal_step_raises_and_writes_nothing() -> None:
    store = open_store("memory://")
    ledger, record = Ledger(store), World("keys", "once").record("t", "this")
    answer = Ref(sha256="0", bytes=0)
    end = Outcome(operation_id=OPERATION, status="COMMITTED", how="executed", answer=answer, committed_at="now")
    with pytest.raises(IllegalTransition):
        await ledger.finish(THREAD, end)
    with pytest.raises(IllegalTransition):
        await ledger.review(THREAD, OPERATION, "why", "now")
    assert await store.keys("threads") == []
    await ledger.prepare(THREAD, record)
    assert await ledger.finish(THREAD, end) == end
    before = sorted(await store.keys("threads"))
    with pytest.raises(IllegalTransition):
        await ledger.claim(THREAD, OPERATION, record.claim.model_copy(update={"attempt": 2}))
    with pytest.raises(IllegalTransition):
        await ledger.review(THREAD, OPERATION, "why", "now")
    other = end.model_copy(update={"status": "SKIPPED"})
    assert await ledger.finish(THREAD, other) == end, "the first end stands"
    assert sorted(await store.keys("threads")) == before


def test_a_note_of_a_request_names_its_operation() -> None:
    key = request_key(THREAD, OPERATION + "~b1", "d" * 64)
    assert key == f"threads/run-1/requests/{'d' * 64}/abcdefabcdef.act_1~b1"


async def test_an_effect_costs_the_ledger_two_puts(tmp_path: Path) -> None:
    """Beside the answer itself, which is stored in any case."""
    store, puts = LocalStore(tmp_path), list[str]()
    put_new = store.put_new

    async def counted(key: str, data: bytes) -> bool:
        puts.append(key.rpartition("/")[2])
        return await put_new(key, data)

    store.put_new = counted  # type: ignore[method-assign]
    made = World("keys", "once").sandwich("token", "well", False, "this")
    sandwich = replace(made, ledger=Ledger(store), deed=Deed(_done, None, 1.0), clock=time.monotonic)
    ended = await sandwich.perform()
    assert isinstance(ended, Outcome)
    assert puts == ["prepared.json", "outcome.json"]


async def _done() -> dict[str, int]:
    return {"id": 7}


async def test_a_look_up_that_only_a_person_can_settle_asks_at_once(tmp_path: Path) -> None:
    """And not only at the last attempt: nothing will change by itself."""

    async def torn() -> None:
        raise Told("the file is neither as it was nor as it should be")

    async def dies() -> None:
        raise RuntimeError

    made = World("lookup", "once").sandwich("token", "well", False, "this")
    ended = await replace(made, ledger=Ledger(LocalStore(tmp_path)), deed=Deed(dies, torn, 1.0)).perform()
    assert isinstance(ended, Review)
    assert "neither as it was" in ended.reason
