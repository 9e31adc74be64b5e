"""Which effects of its source a fork knows of, over recorded runs: in other words each of the others asks a person."""

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.editing import EditActivities
from activities.errors import CheckpointDamaged, InvalidInput
from activities.origin import past_key
from activities.sessions import begin, session_mark
from activities.store import LocalStore
from activities.world import World
from tests.unit.past.forked import FORK, SECOND, SOURCE, fork, known, says
from tests.unit.past.recorded import Recorded
from workflows.fork_records import EditRequest
from workflows.keys import branched_id, folder
from workflows.records import Call, Item, TurnRequest


async def test_a_fork_knows_the_effects_of_its_prefix_and_asks_only_for_a_tool_with_others(
    world: World, run: Recorded
) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    await run.turn(text="done")
    made, forked = await fork(world, SOURCE, 2, FORK)
    assert await known(world, FORK) == {first.operation_id: True, second.operation_id: True}
    assert (forked.inherited, forked.after) == (2, 0)
    assert (await says(made, "in other words", commit=False)).decision == "allow"
    made, forked = await fork(world, SOURCE, 1, SECOND)
    assert (forked.inherited, forked.after) == (1, 1)
    assert (await says(made, "in other words", commit=False)).decision == "ask"


async def test_a_fork_whose_edits_drop_a_call_does_not_know_its_effect(world: World, run: Recorded) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    made, forked = await fork(world, SOURCE, 2, FORK, edits=[{"drop": 1}, {"append": "user", "content": "go on"}])
    assert await known(world, FORK) == {first.operation_id: False, second.operation_id: True}
    assert (forked.inherited, forked.after) == (1, 1)
    call = await says(made, "in other words", commit=False)
    assert (call.decision, str(first.operation_id) in str(call.reason)) == ("ask", True)


async def test_a_fork_of_a_fork_from_before_an_effect_does_not_know_it(world: World, run: Recorded) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    await fork(world, SOURCE, 2, FORK)
    made, _ = await fork(world, FORK, 1, SECOND)
    assert await known(world, SECOND) == {first.operation_id: True, second.operation_id: False}
    assert (await says(made, "in other words", commit=False)).decision == "ask"


async def test_a_fork_of_a_fork_knows_nothing_that_its_source_did_not_know(world: World, run: Recorded) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    made, _ = await fork(world, SOURCE, 1, FORK)
    third = await says(made, "three")
    await made.turn(text="done")
    await fork(world, FORK, 2, SECOND)
    assert await known(world, SECOND) == {
        first.operation_id: True,
        second.operation_id: False,
        third.operation_id: True,
    }
    assert second.id == third.id, "the same call id in both"


async def test_a_call_that_a_fork_decided_on_anew_is_known_by_the_forks_own_effect(world: World, run: Recorded) -> None:
    await says(run, "one", commit=False)  # not settled when it is forked
    run.new = []
    made, forked = await fork(world, SOURCE, 1, FORK)
    assert forked.turn is not None
    [anew] = forked.turn.calls
    assert (anew.decision, anew.operation_id) == ("ask", f"{FORK}:notify:1")
    made.new = [await made.entries.put(FORK, {"role": "tool", "call": "1.0", "tool": "notify", "text": "said"}, "said")]
    await made.commit(anew)
    made.numbers = {"notify": 1}
    await made.turn(text="done")
    for checkpoint, name in ((1, SECOND), (2, "d1.000000000000")):
        await fork(world, FORK, checkpoint, name)
        assert await known(world, name) == {anew.operation_id: True}


async def test_a_sub_agent_at_work_has_not_answered_because_its_start_is_on_record(world: World, run: Recorded) -> None:
    await run.open(run.bundle("2", ["delegate"], policy=[{"tool": "*", "decision": "allow"}]))
    saved = await run.turn(("delegate", {"goal": "look", "bundle": "shop@2"}))
    call = Call.model_validate((saved.outputs.turn or {})["calls"][0])
    assert call.wants is not None, call
    await run.commit(call)
    run.new = []
    _, forked = await fork(world, SOURCE, 1, FORK)
    assert forked.answers == []
    assert forked.turn is not None
    assert [each.decision for each in forked.turn.calls] == ["ask"]
    assert await known(world, FORK) == {call.operation_id: False}


async def test_after_a_reset_each_path_knows_its_own_effect_of_one_number(world: World, run: Recorded) -> None:
    await run.turn(("list_files", {"path": "."}))
    back, new = run.head, list(run.new)
    old = await says(run, "old")
    await run.turn(text="old end")
    run.branch, run.head, run.new, run.numbers, run.branched = "ffffffff", back, new, {}, True
    other = await says(run, "new")
    await run.turn(text="new end")
    assert other.operation_id == branched_id(str(old.operation_id), "ffffffff")
    await fork(world, SOURCE, 3, FORK, branch="0a1b2c3d")
    assert await known(world, FORK) == {old.operation_id: True, other.operation_id: False}
    await fork(world, SOURCE, 3, SECOND, branch="ffffffff")
    assert await known(world, SECOND) == {old.operation_id: False, other.operation_id: True}


async def test_a_call_whose_number_was_taken_when_it_ran_is_known_by_the_name_it_got(
    world: World, run: Recorded
) -> None:
    call = await says(run, "one", commit=False)
    renamed = branched_id(str(call.operation_id), run.branch)
    await run.commit(call.model_copy(update={"operation_id": renamed}))
    await run.commit(call, request_digest="that of a path that was left")
    await run.turn(text="done")
    await fork(world, SOURCE, 2, FORK)
    assert await known(world, FORK) == {renamed: True, call.operation_id: False}


async def test_an_effect_whose_call_was_answered_otherwise_is_not_known(world: World, run: Recorded) -> None:
    call = await says(run, "one")
    run.new = [await run.entries.put(SOURCE, {"role": "tool", "call": "1.0", "tool": "notify", "text": "denied"}, "")]
    await run.turn(text="done")
    await fork(world, SOURCE, 2, FORK)
    assert await known(world, FORK) == {call.operation_id: False}


async def test_an_effect_that_an_edit_of_the_source_took_out_of_its_context_is_not_known(
    world: World, run: Recorded
) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    assert run.head is not None
    context = [*await run.contexts.load(SOURCE, run.head), *await run.entries.get_all(SOURCE, [run.new[0].sha256])]
    run.branch, run.base = "eeeeeeee", await begin(run.entries, SOURCE, [context[0], *context[3:]])
    run.new = []
    await run.turn(text="done")
    _, forked = await fork(world, SOURCE, 3, FORK)
    assert await known(world, FORK) == {first.operation_id: False, second.operation_id: True}
    assert forked.session == 1, "an edit begins no session"


@pytest.mark.parametrize(
    "edit", [{"tool_result": "1.0", "content": "nothing was said"}, {"replace": 2, "content": "no"}]
)
async def test_a_fork_whose_edits_give_a_call_another_answer_does_not_know_its_effect(
    world: World, run: Recorded, edit: dict[str, Any]
) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    edits = [edit, {"append": "user", "content": "go on"}]
    made, _ = await fork(world, SOURCE, 2, FORK, edits=edits)
    assert await known(world, FORK) == {first.operation_id: False, second.operation_id: True}
    call = await says(made, "in other words", commit=False)
    assert (call.decision, str(first.operation_id) in str(call.reason)) == ("ask", True)
    await made.turn(text="done")
    await fork(world, FORK, 3, SECOND)
    assert (await known(world, SECOND))[str(first.operation_id)] is False, "nor does a fork of that one"


async def test_the_same_answer_again_leaves_an_effect_known(world: World, run: Recorded) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    edits = [{"tool_result": "1.0", "content": "said"}, {"append": "user", "content": "go on"}]
    await fork(world, SOURCE, 2, FORK, edits=edits)
    assert await known(world, FORK) == {first.operation_id: True, second.operation_id: True}


async def test_an_edit_of_a_run_that_gives_a_call_another_answer_leaves_its_effect(world: World, run: Recorded) -> None:
    first, _ = await says(run, "one"), await says(run, "two")
    assert run.head is not None
    request = EditRequest(
        thread=SOURCE,
        head=run.head,
        new=[Item(ref=ref) for ref in run.new],
        edits=[{"tool_result": "1.0", "content": "nothing was said"}, {"append": "user", "content": "go on"}],
    )
    edited = await ActivityEnvironment().run(EditActivities(world).edit, request)
    assert [each.operation_id for each in edited.operations] == [first.operation_id]
    run.branch, run.base, run.new = "eeeeeeee", edited.base, []
    await run.turn(text="done")
    await fork(world, SOURCE, 3, FORK)
    assert (await known(world, FORK))[str(first.operation_id)] is False


async def test_a_fork_without_its_record_of_the_past_makes_nothing_again_in_silence(
    world: World, run: Recorded
) -> None:
    await says(run, "one"), await says(run, "two")
    made, _ = await fork(world, SOURCE, 1, FORK)
    assert isinstance(world.store, LocalStore)
    (world.store.folder / past_key(FORK)).unlink()
    with pytest.raises(CheckpointDamaged, match=r"past\.json is not there"):
        await says(made, "in other words", commit=False)
    with pytest.raises(InvalidInput, match=r"past\.json is not there"):
        await fork(world, FORK, 1, SECOND)


async def test_the_effects_of_a_session_before_a_handoff_are_known(world: World, run: Recorded) -> None:
    first, second = await says(run, "one"), await says(run, "two")
    assert run.head is not None
    goal = (await run.contexts.load(SOURCE, run.head))[0]
    left = {"role": "user", "text": f"{session_mark(2, 2)}the facts"}
    run.base, run.new = await begin(run.entries, SOURCE, [goal, left]), []
    await run.turn(text="done")
    _, forked = await fork(world, SOURCE, 3, FORK)
    assert await known(world, FORK) == {first.operation_id: True, second.operation_id: True}
    assert forked.session == 2


@pytest.mark.parametrize("gone", [False, True])
async def test_an_edit_of_a_fork_that_drops_a_call_of_its_source_leaves_the_effect_known_to_nobody(
    world: World, run: Recorded, gone: bool
) -> None:
    first, _ = await says(run, "one"), await says(run, "two")
    made, _ = await fork(world, SOURCE, 2, FORK)
    assert made.head is not None
    if gone:
        await world.store.delete(folder(SOURCE))
    request = EditRequest(
        thread=FORK,
        head=made.head,
        new=[Item(ref=ref) for ref in made.new],
        edits=[{"drop": 1}, {"append": "user", "content": "go on"}],
    )
    edited = await ActivityEnvironment().run(EditActivities(world).edit, request)
    assert [each.operation_id for each in edited.operations] == [first.operation_id]
    assert made.ref is not None
    turn = TurnRequest(
        thread=FORK,
        branch="eeeeeeee",
        turn=3,
        head=made.head,
        new=[],
        bundle=made.ref.digest,
        branched=True,
        abandoned=[str(first.operation_id)],
    )
    [left] = await world.ancestry.abandoned(turn)
    assert (left.operation_id, left.status) == (first.operation_id, "COMMITTED")
