"""What a fork begins from: the path that was meant, its records under another thread, and nothing by guess."""

from pathlib import Path

import pytest

from activities.checkpoints import now_iso
from activities.copying import copy_objects
from activities.errors import CheckpointDamaged, InvalidInput
from activities.origin import Origin, find_origin, origin_key
from activities.sources import Point, Sources
from activities.store import Store, open_store
from scripts.commands.running import Refused
from scripts.records import newest, thread_of
from tests.unit.state.chains import BRANCH, THREAD, Chain, Counting
from workflows.keys import checkpoint_key, folder
from workflows.records import Head

FORK = "copy-1.aaaaaaaaaaaa"
LATER = "2026-11-30T16:00:00.000+00:00"


@pytest.fixture(params=["file", "memory", "wrapped"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    memory = open_store("memory://")
    return memory if request.param == "memory" else Counting(memory)


async def grown(store: Store, turns: int) -> Chain:
    chain = Chain(store)
    await chain.open()
    await chain.turns(turns)
    return chain


def sources(chain: Chain) -> Sources:
    return Sources(chain.store, chain.checkpoints, chain.segments)


async def copied(chain: Chain, head: Head, target: str = FORK) -> None:
    """All of the thread under another name."""
    origin = Origin(workflow_id="run-83", head=head, ancestry=[THREAD], at=now_iso())
    await origin.put(chain.store, origin_key(target))
    keys = await chain.store.keys(folder(THREAD))
    assert await copy_objects(chain.store, [(key, key.replace(folder(THREAD), folder(target))) for key in keys]) == []


async def test_a_copied_prefix_is_read_under_the_new_thread_and_goes_on_there_when_the_source_is_gone(
    store: Store,
) -> None:
    chain = await grown(store, 40)
    assert chain.head is not None
    before = await chain.contexts.load(THREAD, chain.head)
    await copied(chain, chain.head)
    await store.delete(folder(THREAD))
    cold = Chain(store, thread=FORK, branch="ffff0000")
    assert await cold.contexts.load(FORK, chain.head) == before
    cold.head = chain.head
    await cold.turns(40)
    assert cold.head is not None
    again = Chain(store, thread=FORK)
    assert len(await again.contexts.load(FORK, cold.head)) == 160
    records = await again.segments.history(FORK, cold.head, whole=True)
    assert [record.sequence for record in records] == list(range(81))
    assert {record.thread for record in records} == {THREAD, FORK}


async def test_a_record_of_another_thread_is_no_copy_unless_the_fork_says_so(store: Store) -> None:
    chain = await grown(store, 2)
    key = checkpoint_key(THREAD, BRANCH, 2)
    await copy_objects(store, [(key, key.replace(folder(THREAD), folder(FORK)))])
    with pytest.raises(CheckpointDamaged, match="says that it is"):
        await chain.checkpoints.find(FORK, BRANCH, 2)


async def test_what_is_not_there_any_more_is_named(store: Store) -> None:
    await grown(store, 1)
    there, gone = checkpoint_key(THREAD, BRANCH, 1), checkpoint_key(THREAD, BRANCH, 9)
    assert await copy_objects(store, [(there, "threads/x/y/z/1"), (gone, "threads/x/y/z/2")]) == [gone]
    assert await store.get("threads/x/y/z/1") == await store.get(there)
    assert await copy_objects(store, [(there, "threads/x/y/z/1")]) == [], "a second attempt finds it"


async def test_after_a_reset_the_number_means_the_path_that_was_written_to_last(store: Store) -> None:
    chain = await grown(store, 5)
    fork_point = await chain.checkpoints.find(THREAD, BRANCH, 2)
    assert fork_point is not None
    reset = Chain(store, branch="bbbb0000")
    reset.head = fork_point.head()
    reset.at = LATER
    await reset.turns(2)

    async def at(number: int, branch: str | None = None) -> Point:
        return await sources(chain).point("run-83", number, branch)

    assert (await at(1)).record.branch == BRANCH
    assert (await at(4)).record.branch == "bbbb0000"
    shared = await at(2)
    assert shared.record == fork_point
    assert shared.after is not None
    assert shared.after.branch == "bbbb0000"
    assert (await at(4, BRANCH)).record.branch == BRANCH
    with pytest.raises(InvalidInput, match="no checkpoint 5: its last one is 4"):
        await at(5)
    with pytest.raises(InvalidInput, match="no branch 'cccc0000'"):
        await at(1, "cccc0000")


async def test_a_damaged_checkpoint_cannot_be_forked_and_those_before_it_can(store: Store) -> None:
    chain = await grown(store, 3)
    await store.put(checkpoint_key(THREAD, BRANCH, 3), b"{}")
    found = sources(chain)
    with pytest.raises(InvalidInput, match=r"checkpoint 3 of 'run-83' is damaged .* fork from an earlier one"):
        await found.point("run-83", 3)
    earlier = await found.point("run-83", 2)
    assert earlier.after is None
    assert len(await found.whole("run-83", THREAD, earlier.record.head())) == 3
    await store.put(checkpoint_key(THREAD, BRANCH, 1), b"{}")
    with pytest.raises(InvalidInput, match="is damaged"):
        await found.whole("run-83", THREAD, earlier.record.head())


async def test_an_unknown_run_and_a_damaged_origin_are_named(store: Store) -> None:
    chain = await grown(store, 1)
    with pytest.raises(InvalidInput, match="there is no run 'run-84'"):
        await sources(chain).point("run-84", 0)
    assert (await sources(chain).point(THREAD, 0)).thread == THREAD
    await store.put(origin_key(FORK), b'{"sha256": "0"}')
    with pytest.raises(CheckpointDamaged, match=r"fork\.json"):
        await find_origin(store, FORK)


async def damage(store: Store, thread: str, branch: str, *numbers: int) -> None:
    for number in numbers:
        await store.put(checkpoint_key(thread, branch, number), b"{}")


async def test_a_start_of_which_records_are_damaged_is_the_newest_all_the_same(store: Store) -> None:
    await grown(store, 3)
    again = "run-83.00000000aaaa"
    second = Chain(store, thread=again)
    second.at = LATER
    await second.open()
    await second.turns(1)
    await damage(store, again, BRANCH, 0)
    assert (await sources(second).point("run-83", 1)).thread == again
    assert await thread_of(store, "run-83") == again
    await damage(store, again, BRANCH, 1)
    with pytest.raises(InvalidInput, match=rf"{again} can be read, so which start is the newest is not known"):
        await sources(second).point("run-83", 1)
    with pytest.raises(Refused, match=again):
        await thread_of(store, "run-83")
    assert (await sources(second).point(THREAD, 3)).thread == THREAD, "one that is named needs no other"


async def set_back(store: Store, turns: int) -> tuple[Chain, Chain]:
    """Five turns, set back to the first; then so many on another path, which is the live one."""
    chain = await grown(store, 5)
    back = await chain.checkpoints.find(THREAD, BRANCH, 1)
    assert back is not None
    live = Chain(store, branch="bbbb0000")
    live.head, live.at = back.head(), LATER
    await live.turns(turns)
    return chain, live


async def test_a_path_of_which_records_are_damaged_is_the_last_one_all_the_same(store: Store) -> None:
    chain, _ = await set_back(store, 5)
    await damage(store, THREAD, "bbbb0000", 3, 4, 5, 6)
    assert (await sources(chain).point("run-83", 2)).record.branch == "bbbb0000"
    with pytest.raises(InvalidInput, match="checkpoint 5 of 'run-83' is damaged"):
        await sources(chain).point("run-83", 5)
    with pytest.raises(CheckpointDamaged):
        await newest(store, THREAD)
    await damage(store, THREAD, "bbbb0000", 2)
    with pytest.raises(InvalidInput, match=r"branch bbbb0000 of .* which path was written to last is not known"):
        await sources(chain).point("run-83", 5)
    assert (await sources(chain).point("run-83", 5, BRANCH)).record.branch == BRANCH
    with pytest.raises(InvalidInput, match="checkpoint 2 of 'run-83' is damaged"):
        await sources(chain).point("run-83", 1, "bbbb0000")


async def test_a_damaged_record_of_a_path_that_was_left_hides_nothing_of_the_one_that_is_alive(store: Store) -> None:
    _, live = await set_back(store, 1)
    await damage(store, THREAD, BRANCH, 5)
    assert (await newest(store, THREAD)).head() == live.head
