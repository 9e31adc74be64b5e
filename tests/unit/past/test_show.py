"""`perdure show` and `perdure diff` over recorded runs: the tree, the path that a reset left, where two paths part."""

import io
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from activities.context import tool_message
from activities.edits import edits_of, splice
from activities.sessions import begin, session_mark
from activities.store import open_store
from scripts.commands.diff import _diff
from scripts.commands.running import Refused
from scripts.commands.show import _show
from scripts.drawing import draw
from scripts.living import client_or_none
from scripts.tree import tree_of
from tests.unit.past.recorded import THREAD, Recorded
from workflows.records import Call

TOOLS = ["list_files", "write_file", "notify"]
ALLOW = [{"tool": "*", "decision": "allow"}]
Act = Callable[..., Coroutine[Any, Any, tuple[int, dict[str, Any]]]]


async def nobody() -> None:
    """No Temporal service answers."""


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("scripts.commands.show.client_or_none", nobody)
    await made.open(made.bundle("1", TOOLS, policy=[{"tool": "write_file", "decision": "allow"}]), "write two files")
    return made


@pytest.fixture
def act(capsys: pytest.CaptureFixture[str]) -> Act:
    async def call(command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        first, *rest = arguments
        code = await (_show(first, None, False, True) if command == "show" else _diff(first, rest[0], True))
        return code, json.loads(capsys.readouterr().out)

    return call


async def two_paths(run: Recorded) -> Recorded:
    """Three turns with two effects, then set back to checkpoint 1 and gone on otherwise."""
    await run.turn(("list_files", {"path": "."}), answers=["nothing here"])
    assert run.head is not None
    back, new = run.head, list(run.new)
    for name in ("a.txt", "b.txt"):
        saved = await run.turn(("write_file", {"path": name, "content": name}))
        await run.commit(Call.model_validate((saved.outputs.turn or {})["calls"][0]))
    run.branch, run.head, run.new, run.numbers = "ffffffff", back, new, {}
    await run.turn(("notify", {"text": "nothing to write"}))
    await run.turn(text="All is done.")
    return run


async def test_a_run_is_shown_with_its_turns_calls_and_decisions(run: Recorded, act: Act) -> None:
    saved = await run.turn(
        ("write_file", {"path": "a.txt", "content": "a"}), ("notify", {"text": "hi"}), text="I write."
    )
    calls = [Call.model_validate(call) for call in (saved.outputs.turn or {})["calls"]]
    await run.commit(calls[1], "alice")
    await run.turn(text="All is done.")
    code, found = await act("show", "run-83")
    assert (code, found["thread"], found["goal"], found["live"]) == (0, THREAD, "write two files", None)
    [[first, second]] = found["sessions"]
    assert (first["turn"], first["text"], second["text"]) == (1, "I write.", "All is done.")
    decided = {call["id"]: (call["decision"], call["answer"]) for call in first["calls"]}
    assert decided == {"1.0": ("allowed", "result 1.0"), "1.1": ("approved by alice", "result 1.1")}
    assert first["calls"][1]["effect"]["status"] == "COMMITTED"


async def test_without_a_temporal_service_the_store_is_enough(run: Recorded) -> None:
    assert await client_or_none() is None


async def test_a_call_that_waits_and_one_that_was_denied_say_so(run: Recorded, act: Act) -> None:
    await run.turn(("notify", {"text": "hi"}), answers=["bob denied this call. Reason: not now It was not run."])
    await run.turn(("notify", {"text": "hi again"}))
    _, found = await act("show", "run-83")
    [[denied, waits]] = found["sessions"]
    assert denied["calls"][0]["decision"].startswith("bob denied this call.")
    assert waits["calls"][0]["decision"] == "asks a person"


async def test_a_call_that_never_ran_says_so_and_who_decided_it(run: Recorded) -> None:
    saved = await run.turn(
        ("notify", {"text": "one"}), ("notify", {"text": "two"}), answers=["by hand", "bob denied this call."]
    )
    first, second = (call["operation_id"] for call in (saved.outputs.turn or {})["calls"])

    async def decided(*log: dict[str, Any]) -> list[str]:
        tree = await tree_of(run.store, THREAD, decisions=log)
        return [call.decision for turn in tree.turns for call in turn.calls]

    edited = {"operation_id": first, "decision": "answered", "by": "alice", "reason": "by an edit"}
    denied = {"operation_id": second, "decision": "denied", "by": "bob", "reason": "not now"}
    said = ["not run: answered by alice: by an edit", "denied by bob: not now"]
    assert await decided() == ["asks a person", "asks a person"], "the store does not know yet"
    assert await decided(edited, denied) == said
    await run.turn(text="done")
    assert await decided() == ["not run", "bob denied this call."]
    assert await decided(edited, denied) == said


async def test_an_edit_begins_no_session_and_what_it_adds_is_said_by_a_person_and_a_handoff_begins_one(
    run: Recorded,
) -> None:
    await run.turn(("list_files", {"path": "."}))
    assert run.head is not None
    context = [*await run.contexts.load(THREAD, run.head), *await run.entries.get_all(THREAD, [run.new[0].sha256])]
    edits = edits_of([{"append": "user", "content": "Use b."}, {"goal": "another goal"}])
    whole = splice(context, edits, by="alice").whole
    run.branch, run.base, run.new = "eeeeeeee", await begin(run.entries, THREAD, whole), []
    await run.turn(("list_files", {"path": "."}))
    [[_, after]] = (await tree_of(run.store, THREAD)).sessions
    assert after.said == [("alice", "another goal"), ("alice", "Use b.")]
    left = {"role": "user", "text": f"{session_mark(2, 2)}the facts"}
    run.base, run.new = await begin(run.entries, THREAD, [whole[0], left]), []
    await run.turn(text="done")
    sessions = (await tree_of(run.store, THREAD)).sessions
    assert [[turn.turn for turn in session] for session in sessions] == [[1, 2], [3]]


async def test_what_a_reset_left_is_shown_with_what_it_did_and_what_that_means(run: Recorded, act: Act) -> None:
    await two_paths(run)
    _, found = await act("show", "run-83")
    assert [turn["turn"] for turn in found["sessions"][0]] == [1, 2, 3]
    assert found["sessions"][0][1]["calls"][0]["tool"] == "notify"
    [left] = found["left"]
    assert (left["at"], left["branch"], [turn["turn"] for turn in left["turns"]]) == (1, "0a1b2c3d", [2, 3])
    means = "\n".join(left["means"])
    assert "2 effects stay in the world" in means
    assert f"{THREAD}:write_file:2: COMMITTED" in means
    assert "temporal workflow update execute" in means
    assert "compensate" in means


async def test_an_effect_that_the_new_path_took_over_is_not_left(run: Recorded, act: Act) -> None:
    await two_paths(run)
    run.branch, run.numbers = "eeeeeeee", {}
    run.head = (await run.checkpoints.find(THREAD, "0a1b2c3d", 1) or pytest.fail("gone")).head()
    ref = await run.entries.put(THREAD, tool_message("1.0", "list_files", "nothing here"), "")
    run.new = [ref]
    await run.turn(("write_file", {"path": "a.txt", "content": "a.txt"}))
    _, found = await act("show", "run-83")
    left = next(each for each in found["left"] if each["branch"] == "0a1b2c3d")
    assert [effect["operation_id"] for effect in left["effects"]] == [f"{THREAD}:write_file:2"]


async def test_the_tree_is_drawn_short_or_whole_and_rules_no_terminal(run: Recorded) -> None:
    long = "x" * 5000 + "\x1b[2Jthe end"
    await run.turn(("list_files", {"path": "."}), answers=[long])
    await run.turn(text="done")
    tree = await tree_of(run.store, THREAD)
    short, whole = (drawn(tree, full=full) for full in (False, True))
    assert "1.0 list_files" in short
    assert "the end" not in short
    assert "the end" in whole
    assert "\x1b" not in whole
    assert "… 1 earlier turns" in drawn(tree, last=1)


def drawn(tree: Any, last: int | None = None, *, full: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=100_000, highlight=False).print(draw(tree, None, "run-83", last, full))
    return out.getvalue()


async def test_a_damaged_path_that_was_left_hides_nothing_else(run: Recorded, act: Act, tmp_path: Path) -> None:
    await two_paths(run)
    path = next((tmp_path / "store").glob("threads/*/*/checkpoints/0a1b2c3d/00000003.json"))
    path.write_bytes(path.read_bytes()[:-3])
    _, found = await act("show", "run-83")
    assert len(found["sessions"][0]) == 3
    assert "cannot be read" in found["faults"][0]


async def test_two_paths_of_one_run_are_compared_from_where_they_part(run: Recorded, act: Act) -> None:
    await two_paths(run)
    code, found = await act("diff", "run-83@3", "run-83@1")
    assert (code, found["common"], len(found["one"]), found["other"]) == (1, 1, 2, [])
    assert found["one"][0]["message"]["calls"][0]["tool"] == "notify"


async def test_a_fork_is_compared_with_its_source_by_what_was_said(run: Recorded, act: Act, tmp_path: Path) -> None:
    await run.turn(("list_files", {"path": "."}))
    await run.turn(text="It is empty.")
    other = Recorded(tmp_path, "run-84.0123456789ab", "bbbbbbbb")
    await other.open("shop@1", "write two files")
    await other.turn(("list_files", {"path": "."}))
    await other.turn(text="Nothing is there.")
    code, found = await act("diff", "run-83@2", "run-84@2")
    assert (code, found["common"]) == (1, 1)
    assert found["other"][0]["message"]["text"] == "Nothing is there."
    assert await act("diff", "run-83@1", "run-84@1") == (0, {"common": 1, "one": [], "other": []})


async def test_a_place_that_is_not_there_is_refused_by_name(run: Recorded, act: Act, tmp_path: Path) -> None:
    await run.turn(text="done")
    with pytest.raises(Refused, match="has no checkpoint 7: its last is 1"):
        await act("diff", "run-83@7", "run-83")
    with pytest.raises(Refused, match="is no place in a run"):
        await act("diff", "run-83@x", "run-83")
    with pytest.raises(Refused, match="holds no checkpoint of 'run-99'"):
        await act("show", "run-99")
    store = open_store((tmp_path / "store").as_uri())
    await store.put_new("threads/dates/1234/boundaries/00000001-0000abcd.json", b"{}")
    with pytest.raises(Refused, match="perdure project show dates"):
        await act("show", "dates")


async def test_nothing_is_written_by_looking(run: Recorded, act: Act, tmp_path: Path) -> None:
    await two_paths(run)
    store = open_store((tmp_path / "store").as_uri())
    before = sorted(await store.keys(""))
    await act("show", "run-83")
    assert sorted(await store.keys("")) == before
