"""What is said of a fork before it is made, of what it took over, and of what cannot be forked, over recorded runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.canonical import digest
from activities.errors import CheckpointDamaged, InvalidInput
from activities.sessions import begin, session_mark
from activities.world import World
from scripts.commands.running import Refused
from scripts.forks import fork_input
from scripts.records import survey, walk
from scripts.tree import tree_of
from tests.unit.past.forked import FORK, SECOND, SOURCE, TOOLS, fork, known, preview, says
from tests.unit.past.recorded import Recorded
from workflows.keys import effect_folder, folder, undo_id
from workflows.records import Call


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


async def test_the_preview_names_the_run_that_can_undo_each_effect(
    world: World, run: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = await run.turn(("write_file", {"path": "a.txt", "content": "a"}))
    await run.commit(Call.model_validate((saved.outputs.turn or {})["calls"][0]))
    made, _ = await fork(world, SOURCE, 0, FORK)
    saved = await made.turn(("write_file", {"path": "b.txt", "content": "b"}))
    await made.commit(Call.model_validate((saved.outputs.turn or {})["calls"][0]))
    found = await preview(world, monkeypatch, 0, run="b1")
    by_run = {each["operation_id"].partition(".")[0]: each["undo"] for each in found["after"]}
    assert {run: f"--workflow-id {run} " in undo for run, undo in by_run.items()} == {"a1": True, "b1": True}
    found = await preview(world, monkeypatch, 0, run="b1", ended="a1")
    why = {each["operation_id"].partition(".")[0]: (each["undo"] is None, each["why_not"]) for each in found["after"]}
    assert why == {"a1": (True, "a1 has ended, and only a run that is open undoes what it did"), "b1": (False, None)}


@pytest.mark.parametrize(
    ("field", "said"),
    [({"budget": {"turns": "x"}}, "budget.turns"), ({"repeat": "sure"}, "repeat"), ({"inputs": {}}, "inputs")],
)
def test_the_preview_refuses_the_fields_that_the_start_refuses(field: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=f"field `{said}"):
        fork_input({"fork": {"workflow_id": "a1", "checkpoint": 1}, **field})


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
    (run.store.folder / key).unlink()
    with pytest.raises(InvalidInput, match="the record of the handoff after checkpoint 1 is gone"):
        await fork(world, SOURCE, 1, "e1.000000000000")
    assert await walk(run.store, SOURCE, await survey(run.store, SOURCE)) == [
        "the record of the handoff before checkpoint 2 is gone"
    ]
    _, forked = await fork(world, SOURCE, 2, "d1.000000000000")
    assert forked.session == 2, "one from elsewhere does not need it"


async def test_a_record_of_the_ledger_that_is_damaged_or_anothers_is_none_of_an_operation(run: Recorded) -> None:
    one, two = await says(run, "one"), await says(run, "two")
    keys = [f"{effect_folder(SOURCE, str(call.operation_id))}/outcome.json" for call in (one, two)]
    whole, other = await run.store.get(keys[0]), await run.store.get(keys[1])
    assert whole is not None
    assert other is not None
    for wrong, said in ((other, f"is the record of {two.operation_id}"), (whole[:20], "is damaged")):
        await run.store.put(keys[0], wrong)
        with pytest.raises(CheckpointDamaged, match=said):
            await run.ledger.outcome(SOURCE, str(one.operation_id))
        [fault] = await walk(run.store, SOURCE, await survey(run.store, SOURCE))
        assert keys[0] in fault
