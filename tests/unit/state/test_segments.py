"""Segments: what a cold worker reads, and that a packed chain is as strict as a loose one."""

import asyncio
import zlib
from pathlib import Path

import pytest

from activities.context import check
from activities.errors import CheckpointDamaged
from activities.segments import EVERY, PACKED_BYTES, TAIL_BYTES
from activities.store import LocalStore, RemoteStore, Store, open_store
from scripts.benches.rig import store_size
from tests.unit.state.chains import BRANCH, THREAD, Chain, Counting
from workflows.keys import checkpoint_key, entry_key, segment_key
from workflows.records import Head


@pytest.fixture
def store() -> Store:
    made = open_store("memory:///")
    assert isinstance(made, RemoteStore)
    return made


async def grown(store: Store, turns: int) -> Chain:
    chain = Chain(store)
    await chain.open()
    await chain.turns(turns)
    return chain


async def cold(store: Store, head: Head | None) -> list[str]:
    """The texts of the context, as a worker that knows nothing reads it."""
    assert head is not None
    messages = await Chain(store).contexts.load(THREAD, head)
    return [message["text"] for message in messages]


def expected(turns: int) -> list[str]:
    pairs = [[f"turn {n}", f"result {n}"] for n in range(1, turns + 1)]
    return ["do it", *[text for pair in pairs for text in pair]][: 2 * turns]


@pytest.mark.parametrize("turns", [0, 1, 30, 31, 32, 33, 63, 64, 100])
async def test_a_cold_worker_rebuilds_the_same_context(store: Store, turns: int) -> None:
    chain = await grown(store, turns)
    assert chain.head is not None
    assert await cold(store, chain.head) == (expected(turns) or ["do it"])
    assert await chain.contexts.load(THREAD, chain.head) == await Chain(store).contexts.load(THREAD, chain.head)


@pytest.mark.parametrize("turns", [100, 159, 160, 161, 320])
async def test_a_cold_load_reads_a_segment_for_32_turns_and_at_most_31_records(store: Store, turns: int) -> None:
    chain = await grown(store, turns)
    counting = Counting(store)
    await cold(counting, chain.head)
    records = {kind: counting.reads.count(kind) for kind in ("segments", "checkpoints", "entries")}
    assert records["checkpoints"] <= EVERY - 1
    assert records["segments"] <= turns // EVERY + 1
    assert records["entries"] <= EVERY - 1
    assert await cold(store, chain.head) == expected(turns)


async def test_a_warm_worker_reads_neither_chain_nor_bodies(store: Store) -> None:
    counting = Counting(store)
    chain = await grown(counting, 50)
    counting.reads.clear()
    await chain.turns(5)
    assert counting.reads.count("checkpoints") + counting.reads.count("entries") == 0


async def test_bytes_in_the_store_are_linear(store: Store, tmp_path: Path) -> None:
    sizes = []
    chain = await grown(LocalStore(tmp_path), 0)
    for _ in range(2):
        await chain.turns(96)
        sizes.append(store_size(tmp_path)[0])
    assert sizes[1] < 2.2 * sizes[0]


async def test_a_missing_due_segment_is_written_by_the_next_worker(store: Store) -> None:
    chain = await grown(store, 31)
    await store.delete("threads/run-83/9c41d07be2f5/segments")
    other = Chain(store)
    other.head = chain.head
    await other.turns(1)
    assert await store.get(segment_key(THREAD, BRANCH, 31)) is not None
    assert await cold(store, other.head) == expected(32)


async def test_two_workers_that_write_the_same_segment_agree(store: Store) -> None:
    chain = await grown(store, 31)
    await store.delete("threads/run-83/9c41d07be2f5/segments")
    assert chain.head is not None
    last = await chain.checkpoints.load(THREAD, chain.head)
    heads = await asyncio.gather(*(Chain(store).segments.after(last) for _ in range(4)))
    assert len(set(heads)) == 1


async def test_a_segment_ends_early_when_its_bodies_are_many(store: Store) -> None:
    chain = await grown(store, 1)
    for number in range(8):
        await chain.turn("x" * (TAIL_BYTES // 4) + str(number))
    assert await store.keys("threads/run-83/9c41d07be2f5/segments")
    last = await chain.checkpoints.load(THREAD, chain.head)  # type: ignore[arg-type]
    assert last.segment is not None
    assert last.sequence - last.segment.sequence < 8
    assert len((await cold(store, chain.head))[-2]) > TAIL_BYTES // 4 - 1


async def test_large_bodies_are_not_kept_twice(store: Store) -> None:
    chain = await grown(store, 1)
    await chain.turn("y" * (PACKED_BYTES + 1))
    await chain.turns(40)
    data = await store.get(segment_key(THREAD, BRANCH, 31)) or b""
    assert b"yyyy" not in zlib.decompress(data)
    assert "y" * (PACKED_BYTES + 1) in await cold(store, chain.head)


async def test_a_segment_goes_over_a_reset_and_leaves_the_abandoned_path_out(store: Store) -> None:
    chain = await grown(store, 40)
    at_20 = await chain.checkpoints.find(THREAD, BRANCH, 20)
    assert at_20 is not None
    other = Chain(store, branch="ffff0000")
    other.head = at_20.head()
    for _ in range(50):
        await other.turn(said="other")
    texts = await cold(store, other.head)
    assert texts[:41] == expected(21)[:41]
    assert texts[41::2] == ["other"] * 50
    assert texts[39:41] == ["turn 20", "result 20"]
    assert await cold(store, chain.head) == expected(40)


async def test_a_base_begins_the_context_anew(store: Store) -> None:
    chain = await grown(store, 70)
    await chain.turn(base=True)
    assert await cold(store, chain.head) == ["handoff before turn 71", "turn 71"]
    await chain.turns(70)
    texts = await cold(store, chain.head)
    assert texts[0] == "handoff before turn 71"
    assert len(texts) == 2 * 71
    assert texts == [m["text"] for m in await chain.contexts.load(THREAD, chain.head)]  # type: ignore[arg-type]
    check((await chain.contexts.load(THREAD, chain.head))[:-1])  # type: ignore[arg-type]


async def test_a_base_saves_a_cold_worker_what_lies_before_it(store: Store) -> None:
    chain = await grown(store, 200)
    await chain.turn(base=True)
    await chain.turns(3)
    counting = Counting(store)
    await cold(counting, chain.head)
    assert counting.reads.count("segments") == 0


async def damage(store: Store, how: str) -> None:
    key = segment_key(THREAD, BRANCH, 31)
    data = await store.get(key) or b""
    if how == "gone":
        await store.delete("threads/run-83/9c41d07be2f5/segments")
    elif how == "cut":
        await store.put(key, data[:-10])
    elif how == "altered":
        await store.put(key, zlib.compress(zlib.decompress(data).replace(b"result 3", b"result X")))
    elif how == "future":
        await store.put(key, zlib.compress(zlib.decompress(data).replace(b'"schema_version":1', b'"schema_version":9')))
    else:
        await store.put(key, b"")


@pytest.mark.parametrize("how", ["gone", "cut", "altered", "future", "empty"])
async def test_a_damaged_segment_stops(store: Store, how: str) -> None:
    chain = await grown(store, 50)
    await damage(store, how)
    with pytest.raises(CheckpointDamaged, match="segment"):
        await cold(store, chain.head)


async def test_a_forged_segment_that_nobody_has_named_yet_is_not_believed(store: Store) -> None:
    chain = await grown(store, 32)
    key = segment_key(THREAD, BRANCH, 31)
    forged = zlib.decompress(await store.get(key) or b"").replace(b"result 3", b"result X")
    chain.head = (await chain.checkpoints.find(THREAD, BRANCH, 31)).head()  # type: ignore[union-attr]
    await store.put(key, zlib.compress(forged))
    with pytest.raises(CheckpointDamaged, match="another digest"):
        await cold(store, chain.head)


async def test_a_packed_body_needs_no_entry_and_a_loose_one_does(store: Store) -> None:
    chain = await grown(store, 40)
    packed = await chain.checkpoints.find(THREAD, BRANCH, 5)
    loose = await chain.checkpoints.find(THREAD, BRANCH, 38)
    assert packed is not None
    assert loose is not None
    memory = store.inner if isinstance(store, Counting) else store
    await _drop(memory, entry_key(THREAD, packed.inputs.entries[0]))
    assert await cold(store, chain.head) == expected(40)
    await _drop(memory, entry_key(THREAD, loose.inputs.entries[0]))
    with pytest.raises(CheckpointDamaged, match="missing from the store"):
        await cold(store, chain.head)


async def _drop(store: Store, key: str) -> None:
    assert isinstance(store, RemoteStore)
    await store.store.delete_async(key)


async def test_a_record_that_is_gone_from_the_middle_does_not_matter_once_it_is_packed(store: Store) -> None:
    chain = await grown(store, 40)
    await _drop(store, checkpoint_key(THREAD, BRANCH, 5))
    assert await cold(store, chain.head) == expected(40)
    with pytest.raises(CheckpointDamaged, match="gap"):
        await chain.checkpoints.chain(THREAD, chain.head)  # type: ignore[arg-type]
