"""Records and their chain: what does not fit stops a run, by name, and nothing is guessed."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.canonical import digest
from activities.checkpoints import Checkpoints, Inputs
from activities.errors import CheckpointConflict, CheckpointDamaged, StoreUnavailable
from activities.store import LocalStore
from tests.unit.state.chains import BRANCH, THREAD, Chain
from workflows.keys import checkpoint_key
from workflows.records import Head


@pytest.fixture
async def chain(tmp_path: Path) -> Chain:
    made = Chain(LocalStore(tmp_path / "store"))
    await made.open()
    await made.turns(12)
    return made


async def rewrite(chain: Chain, number: int, resealed: bool = True, **changes: Any) -> None:
    """Changes fields of a record on disk; `resealed`: its digest is made to fit again."""
    key = checkpoint_key(THREAD, BRANCH, number)
    body = json.loads(await chain.store.get(key) or b"")
    body.update(changes)
    if resealed:
        body["sha256"] = digest({name: value for name, value in body.items() if name != "sha256"})
    await chain.store.put(key, json.dumps(body).encode())


async def stops(chain: Chain, match: str) -> None:
    """A cold worker stops at the chain."""
    assert chain.head is not None
    with pytest.raises(CheckpointDamaged, match=match):
        await Chain(chain.store).contexts.load(THREAD, chain.head)


async def test_ten_comes_after_two(chain: Chain) -> None:
    await chain.store.put(f"{checkpoint_key(THREAD, BRANCH, 3)[:-13]}3.json", b"{}")
    await chain.store.put(f"{checkpoint_key(THREAD, BRANCH, 3)[:-13]}000000003.json", b"{}")
    await chain.store.put(f"{checkpoint_key(THREAD, BRANCH, 3)[:-13]}00000003.json.bak", b"{}")
    assert await chain.checkpoints.names(THREAD) == [(BRANCH, number) for number in range(13)]
    assert chain.head is not None
    assert [record.sequence for record in await chain.checkpoints.chain(THREAD, chain.head)] == list(range(13))


async def test_a_damaged_newest_stops_and_an_older_one_is_not_taken(chain: Chain) -> None:
    await chain.store.put(checkpoint_key(THREAD, BRANCH, 12), b'{"schema": 1')
    await stops(chain, "00000012.json cannot be read")


async def test_a_worker_that_wrote_a_record_finds_it_damaged_or_gone_all_the_same(chain: Chain) -> None:
    """It spares the check of bytes that it has checked, not the look at them: before the model and before an effect."""
    assert chain.head is not None
    number = chain.head.sequence
    assert (await chain.checkpoints.load(THREAD, chain.head)).sequence == number
    await rewrite(chain, number, resealed=False, versions={"bundle": "another@1"})
    with pytest.raises(CheckpointDamaged, match="does not have its digest"):
        await chain.checkpoints.load(THREAD, chain.head)
    await chain.store.delete(checkpoint_key(THREAD, BRANCH, number).rpartition("/")[0])
    with pytest.raises(CheckpointDamaged, match="is missing from the store"):
        await chain.checkpoints.load(THREAD, chain.head)


async def test_the_number_in_the_name_and_in_the_record_must_agree(chain: Chain) -> None:
    await rewrite(chain, 12, sequence=11)
    await stops(chain, "says that it is .*/11")


@pytest.mark.parametrize("field", ["branch", "thread"])
async def test_a_record_under_another_name_is_not_taken(chain: Chain, field: str) -> None:
    changes: dict[str, Any] = {field: "other"}
    await rewrite(chain, 12, **changes)
    await stops(chain, "says that it is")


@pytest.mark.parametrize("empty", ["", None])
async def test_an_empty_digest_is_no_digest(chain: Chain, empty: str | None) -> None:
    await rewrite(chain, 12, resealed=False, sha256=empty)
    await stops(chain, "no digest")


async def test_an_empty_digest_of_the_head_accepts_nothing(chain: Chain) -> None:
    with pytest.raises(CheckpointDamaged, match="digest differs"):
        await chain.checkpoints.load(THREAD, Head(branch=BRANCH, sequence=12, sha256=""))


@pytest.mark.parametrize("schema", [0, 2, "1", None, 1.5, True])
async def test_an_unknown_schema_stops_and_says_which_are_known(chain: Chain, schema: Any) -> None:
    await rewrite(chain, 12, schema=schema)
    await stops(chain, r"schema .*this release reads 1: use the release")


async def test_a_future_schema_with_fields_of_its_own_is_named_as_such(chain: Chain) -> None:
    await rewrite(chain, 12, resealed=False, schema=7, sha256="blake3:of something else")
    await stops(chain, "schema 7")


async def test_an_altered_record_stops(chain: Chain) -> None:
    await rewrite(chain, 5, resealed=False, step_id="other")
    await stops(chain, "00000005.json is damaged")


async def test_an_altered_record_with_a_fitting_digest_breaks_the_chain(chain: Chain) -> None:
    await rewrite(chain, 5, effects=[])
    await stops(chain, "00000005.json is altered")


async def test_a_gap_stops(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "store" / checkpoint_key(THREAD, BRANCH, 5)).unlink()
    await stops(chain, "00000005.json is missing .* gap")


@pytest.mark.parametrize("parent", [None, {"key": "x", "sha256": "y"}, {}])
async def test_a_link_that_leads_nowhere_stops(chain: Chain, parent: Any) -> None:
    await rewrite(chain, 12, parent=parent)
    chain.head = (await chain.checkpoints.find(THREAD, BRANCH, 12)).head()  # type: ignore[union-attr]
    await stops(chain, "gap|not before it")


async def test_an_empty_file_is_damage_and_not_absence(chain: Chain) -> None:
    await chain.store.put(checkpoint_key(THREAD, BRANCH, 13), b"")
    with pytest.raises(CheckpointDamaged):
        await chain.checkpoints.find(THREAD, BRANCH, 13)


async def test_none_and_unreadable_are_different_answers(chain: Chain, tmp_path: Path) -> None:
    assert await chain.checkpoints.find(THREAD, BRANCH, 13) is None
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable):
        await chain.checkpoints.find(THREAD, BRANCH, 13)


async def test_a_missing_or_altered_body_stops(chain: Chain) -> None:
    record = await chain.checkpoints.find(THREAD, BRANCH, 7)
    assert record is not None
    key = f"threads/run-83/9c41d07be2f5/entries/{record.inputs.entries[0]}"
    await chain.store.put(key, b'{"role": "tool", "call": "6.0", "tool": "read", "text": "forged"}')
    await stops(chain, "other content than its name")


async def test_the_same_request_again_gives_the_record_that_stands(chain: Chain) -> None:
    stands = await chain.checkpoints.find(THREAD, BRANCH, 12)
    assert stands is not None
    again = stands.model_copy(update={"timestamp": "later", "sha256": ""})
    assert (await chain.checkpoints.save(again)).head() == stands.head()


async def test_another_request_under_the_same_key_is_a_conflict_and_changes_nothing(chain: Chain) -> None:
    stands = await chain.checkpoints.find(THREAD, BRANCH, 12)
    assert stands is not None
    with pytest.raises(CheckpointConflict):
        await chain.checkpoints.save(stands.model_copy(update={"inputs": Inputs(request_digest="another")}))
    assert await chain.checkpoints.find(THREAD, BRANCH, 12) == stands


async def test_a_chain_goes_on_over_a_new_branch(chain: Chain) -> None:
    at_8 = await chain.checkpoints.find(THREAD, BRANCH, 8)
    assert at_8 is not None
    other = Chain(chain.store, branch="ffff0000")
    other.head = at_8.head()
    await other.turns(3)
    found = await Chain(chain.store).checkpoints.chain(THREAD, other.head)
    assert [(record.branch, record.sequence) for record in found][7:] == [
        (BRANCH, 7),
        (BRANCH, 8),
        *(("ffff0000", number) for number in (9, 10, 11)),
    ]


async def test_an_older_schema_is_migrated_and_keeps_its_place_in_the_chain(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    steps = {1: lambda body: {**body, "error_message": "migrated"}}
    old, new = Chain(store), Chain(store, steps=steps, newest=2)
    await old.open()
    await old.turns(20)
    new.head = old.head
    await new.turns(20)
    assert new.head is not None
    records = await Chain(store, steps=steps, newest=2).segments.history(THREAD, new.head)
    assert [record.error_message for record in records] == ["migrated"] * 21 + [None] * 20
    assert [record.effects for record in records[1:]] == [[f"fx:v1:{number}"] for number in range(1, 41)]
    with pytest.raises(CheckpointDamaged, match="schema 2"):
        await Chain(store).contexts.load(THREAD, new.head)


async def test_a_migration_may_not_touch_effects(chain: Chain) -> None:
    reader = Checkpoints(chain.store, {1: lambda body: {**body, "effects": []}}, 2)
    with pytest.raises(CheckpointDamaged, match="cannot be read"):
        await reader.find(THREAD, BRANCH, 12)


async def test_a_migration_does_not_mend_a_broken_digest(chain: Chain) -> None:
    await rewrite(chain, 12, resealed=False, step_id="other")
    reader = Checkpoints(chain.store, {1: dict}, 2)
    with pytest.raises(CheckpointDamaged, match="does not have its digest"):
        await reader.find(THREAD, BRANCH, 12)
