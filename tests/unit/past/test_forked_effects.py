"""Which effects of its source a fork knows of, over recorded runs: in other words each of the others asks a person."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.testing import ActivityEnvironment

from activities import settled
from activities.canonical import digest
from activities.errors import InvalidInput
from activities.fork_input import ForkInput, pinned
from activities.forking import ForkActivities
from activities.origin import find_past
from activities.sessions import begin, session_mark
from activities.tools.executor import Executor
from activities.world import World
from scripts import forks
from scripts.records import survey, walk
from scripts.tree import tree_of
from tests.unit.past.recorded import Recorded
from workers.settings import read_settings
from workflows.fork_records import Forked, ForkRequest
from workflows.keys import branched_id, folder, undo_id
from workflows.records import Call, Item

SOURCE, FORK, SECOND = "a1.9c41d07be2f5", "b1.0123456789ab", "c1.ba9876543210"
TOOLS = ["list_files", "notify"]


async def nobody(*_: Any) -> dict[str, Item]:
    """No Temporal service answers."""
    return {}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = Recorded(tmp_path)
    executor = Executor(threads=1)
    monkeypatch.setattr(settled, "_asked", nobody)
    yield World(
        made.store,
        made.registry,
        executor,
        lambda _: None,
        bundle_folders=[tmp_path / "bundles"],
        workspaces=tmp_path / "workspaces",
    )
    executor.close()


@pytest.fixture
async def run(tmp_path: Path) -> Recorded:
    made = Recorded(tmp_path, SOURCE)
    await made.open(made.bundle("1", TOOLS, policy=[{"tool": "*", "decision": "allow"}]))
    return made


async def says(run: Recorded, text: str, *, commit: bool = True) -> Call:
    """A turn that makes an effect; `commit`: it happened."""
    saved = await run.turn(("notify", {"text": text}), answers=["said"])
    call = Call.model_validate((saved.outputs.turn or {})["calls"][0])
    if commit:
        await run.commit(call)
    return call


async def fork(world: World, source: str, checkpoint: int, name: str, **more: Any) -> tuple[Recorded, Forked]:
    """A fork as `run.open` and `run.fork` make it, where its first turn begins."""
    wanted = {"workflow_id": source.partition(".")[0], "checkpoint": checkpoint, **more}
    start = await pinned(world, name, ForkInput.model_validate(wanted))
    assert start.record is not None
    assert start.bundle is not None
    branch = name[-8:]
    request = ForkRequest(
        thread=name, branch=branch, head=start.record.head(), bundle=start.bundle, ancestry=start.ancestry
    )
    data = json.dumps({"fork": wanted}).encode()
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    environment = ActivityEnvironment(client=await Client.connect("127.0.0.1:1", lazy=True))
    forked: Forked = await environment.run(ForkActivities(world).fork, request, RawValue(payload))
    run = Recorded(world.workspaces.path(name).parents[1], name, branch)
    run.ref, run.head, run.versions = start.bundle, request.head, start.record.versions
    run.ancestry_of, run.base = start.ancestry, forked.base
    run.seconds = 600  # later than all of the source
    run.new = [item.ref for item in forked.answers if item.ref is not None]
    return run, forked


async def known(world: World, name: str) -> dict[str, bool]:
    """The effects that a fork keeps of its source, and whether its context holds them."""
    return {each.record.operation_id: not each.after for each in await find_past(world.store, name)}


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


async def preview(
    world: World, monkeypatch: pytest.MonkeyPatch, checkpoint: int, *edits: dict[str, Any]
) -> dict[str, Any]:
    """What `perdure fork` says before anything runs."""

    async def made(*_: Any) -> World:
        return world

    monkeypatch.setattr(forks, "make_world", made)
    wanted = forks.fork_input({"fork": {"workflow_id": "a1", "checkpoint": checkpoint, "edits": list(edits)}})
    client = await Client.connect("127.0.0.1:1", lazy=True)
    return (await forks.report(client, read_settings({}), wanted, None)).view()


async def test_what_the_source_undid_is_not_kept_but_told_where_the_context_holds_it(
    world: World, run: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, kept = await says(run, "one"), await says(run, "two")
    await run.turn(text="done")
    assert call.operation_id is not None
    undo = call.model_copy(update={"operation_id": undo_id(call.operation_id)})
    await run.commit(undo, undoes=call.operation_id)
    await fork(world, SOURCE, 3, FORK)
    assert await known(world, FORK) == {kept.operation_id: True}
    for checkpoint, told in ((3, [call.operation_id]), (0, [])):
        found = await preview(world, monkeypatch, checkpoint)
        assert [each["operation_id"] for each in found["undone"]] == told


async def test_the_preview_refuses_the_edits_that_the_start_refuses(
    world: World, run: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    await says(run, "one")
    await run.turn(text="done")
    edit = {"replace": 3, "content": "other words"}
    with pytest.raises(InvalidInput, match="agent's own message") as started:
        await fork(world, SOURCE, 2, FORK, edits=[edit])
    with pytest.raises(InvalidInput) as shown:
        await preview(world, monkeypatch, 2, edit)
    assert shown.value.message == started.value.message


async def test_a_fork_shows_who_approved_the_calls_that_it_took_over(world: World, tmp_path: Path) -> None:
    run = Recorded(tmp_path, SOURCE)
    await run.open(run.bundle("2", TOOLS))
    for number, by in enumerate(("alice", "bob")):
        saved = await run.turn(("notify", {"text": f"{number}"}))
        await run.commit(Call.model_validate((saved.outputs.turn or {})["calls"][0]), by)
    await run.turn(text="done")
    made, _ = await fork(world, SOURCE, 1, FORK)
    await made.turn(text="done")
    await world.store.delete(folder(SOURCE))
    tree = await tree_of(world.store, FORK)
    assert [call.decision for turn in tree.turns for call in turn.calls] == ["approved by alice"]
    assert tree.other == []


async def test_a_damaged_handoff_has_a_name_for_forks_that_need_it_and_for_verify(world: World, run: Recorded) -> None:
    saved = await run.turn(("list_files", {"path": "."}))
    goal = (await run.contexts.load(SOURCE, saved.head()))[0]
    record = {"facts": {"checkpoint": {"sha256": saved.sha256}}, "new": [ref.sha256 for ref in run.new]}
    whole = json.dumps({**record, "sha256": digest(record)}).encode()
    key = f"{folder(SOURCE)}/handoffs/{run.branch}/0001.json"
    await run.store.put(key, whole)
    left = {"role": "user", "text": f"{session_mark(2, 1)}the facts"}
    run.base, run.new = await begin(run.entries, SOURCE, [goal, left]), []
    await run.turn(text="done")
    _, forked = await fork(world, SOURCE, 1, FORK)
    assert [item.call for item in forked.answers] == ["1.0"]
    assert await walk(run.store, SOURCE, await survey(run.store, SOURCE)) == []
    for damaged in (whole[:30], whole.replace(b"new", b"gnu"), b"[" * 100_000):
        await run.store.put(key, damaged)
        with pytest.raises(InvalidInput, match=r"checkpoint 1 .*handoffs/.*0001\.json"):
            await fork(world, SOURCE, 1, SECOND)
        [fault] = await walk(run.store, SOURCE, await survey(run.store, SOURCE))
        assert key in fault
    _, forked = await fork(world, SOURCE, 2, "d1.000000000000")
    assert forked.session == 2, "one from elsewhere does not need it"
