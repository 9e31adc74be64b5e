"""A state machine over the checkpoint store: workers that save, race, die between any two writes and start cold, while
files are damaged and mended. Whatever happens, what was acknowledged is there, or the reader stops by name."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.checkpoints import Inputs
from activities.errors import CheckpointConflict, CheckpointDamaged
from activities.segments import is_due
from tests.unit.state.chains import BRANCH, THREAD, Chain
from workflows.keys import checkpoint_key
from workflows.records import Head

T = TypeVar("T")


class Crash(BaseException):
    """The process dies here."""


class Disk:
    """A store in memory whose process can die before or after any write. A write is whole or not there at all."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.left: int | None = None

    def _step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    async def put(self, key: str, data: bytes) -> None:
        self._step()
        self.files[key] = data
        self._step()

    async def put_new(self, key: str, data: bytes) -> bool:
        self._step()
        new = key not in self.files
        self.files.setdefault(key, data)
        self._step()
        return new

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return self.files.get(key)

    async def keys(self, prefix: str) -> list[str]:
        return [key for key in self.files if key.startswith(f"{prefix}/")]

    async def delete(self, prefix: str) -> int:
        gone = await self.keys(prefix)
        for key in gone:
            del self.files[key]
        return len(gone)


class CheckpointMachine(RuleBasedStateMachine):
    """`texts` is the model: the context as it was acknowledged. `branch` is the one that new records go to."""

    @initialize(start=st.sampled_from([0, 28, 31, 62]))
    def open(self, start: int) -> None:
        self.disk, self.branch, self.branches = Disk(), BRANCH, 0
        self.loop = asyncio.new_event_loop()
        self.steps: dict[int, Any] = {}
        self.newest = 1
        self.worker = self.fresh()
        self.do(self.worker.open())
        self.heads: list[Head] = [self.worker.head] if self.worker.head else []
        for _ in range(start):
            self.save()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def fresh(self) -> Chain:
        return Chain(self.disk, branch=self.branch, steps=self.steps, newest=self.newest)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    @rule()
    def save(self) -> None:
        """A turn by the worker that holds the context."""
        self.worker.head = self.heads[-1]
        self.heads.append(self.do(self.worker.turn()).head())

    @rule()
    def restart(self) -> None:
        """A new process."""
        self.worker = self.fresh()

    @rule(writes=st.integers(0, 8))
    def crash(self, writes: int) -> None:
        """The process dies at some write of a turn; the next one does the turn again."""
        self.worker.head = self.heads[-1]
        self.disk.left = writes
        try:
            done = self.do(self.worker.turn()).head()
        except Crash:
            done = None
        self.disk.left = None
        published = self.do(self.fresh().checkpoints.find(THREAD, self.branch, self.heads[-1].sequence + 1))
        self.worker = self.fresh()
        self.worker.head = self.heads[-1]
        again = self.do(self.worker.turn()).head()
        assert published is None or again == published.head(), "a published turn is found, not made again"
        assert done is None or done == again
        self.heads.append(again)

    @rule(count=st.integers(2, 4))
    def race(self, count: int) -> None:
        """Attempts of one turn on several workers: all end with the same record."""
        workers = [self.fresh() for _ in range(count)]
        for worker in workers:
            worker.head = self.heads[-1]

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(worker.turn() for worker in workers))

        ends = {record.head().sha256 for record in self.do(all_of_them())}
        assert len(ends) == 1
        head = workers[0].head
        assert head is not None
        self.heads.append(head)

    @rule()
    def conflict(self) -> None:
        """Another request under a key that is taken is refused, and changes nothing."""
        head = self.heads[-1]
        record = self.do(self.fresh().checkpoints.load(THREAD, head))
        before = dict(self.disk.files)
        try:
            self.do(
                self.fresh().checkpoints.save(record.model_copy(update={"inputs": Inputs(request_digest="another")}))
            )
            raise AssertionError("it was accepted")
        except CheckpointConflict:
            assert self.disk.files == before

    @rule(back=st.integers(1, 40))
    def reset(self, back: int) -> None:
        """The run goes on from an earlier checkpoint, on a new branch."""
        self.heads = self.heads[: max(1, len(self.heads) - back)]
        self.branches += 1
        self.branch = f"{self.branches:08x}"
        self.worker = self.fresh()

    @precondition(lambda self: self.newest == 1)
    @rule()
    def migrate(self) -> None:
        """A new release: it has another schema, and reads the old one."""
        self.steps, self.newest = {1: lambda body: {**body, "error_message": None}}, 2
        self.worker = self.fresh()

    @rule(data=st.data())
    def corrupt(self, data: st.DataObject) -> None:
        """A file is damaged or lost: a cold reader stops by name, or did not need it. Then the file is restored."""
        key = data.draw(st.sampled_from(sorted(key for key in self.disk.files if "/threads/" in f"/{key}")))
        held, needed = self.disk.files[key], self.needed()
        how = data.draw(st.sampled_from(["lost", "cut", "empty", "flipped"]))
        if how == "lost":
            del self.disk.files[key]
        else:
            place = data.draw(st.integers(0, len(held) - 1))
            flipped = held[:place] + bytes([held[place] ^ 1]) + held[place + 1 :]
            self.disk.files[key] = {"cut": held[:place], "empty": b"", "flipped": flipped}[how]
        try:
            assert self.cold() == self.expected()
            assert key not in needed
        except CheckpointDamaged:
            pass
        self.disk.files[key] = held

    def needed(self) -> set[str]:
        """The records that a cold reader takes one by one: no damage to them may go unseen."""
        newest = self.do(self.fresh().checkpoints.load(THREAD, self.heads[-1]))
        after = newest.segment.sequence if newest.segment else -1
        loose = [head for head in self.heads if head.sequence > after and not is_due(newest)]
        return {checkpoint_key(THREAD, head.branch, head.sequence) for head in [*loose, self.heads[-1]]}

    def cold(self) -> list[str]:
        messages = self.do(self.fresh().contexts.load(THREAD, self.heads[-1]))
        return [message["text"] for message in messages]

    def expected(self) -> list[str]:
        texts = ["do it"]
        for number in range(1, len(self.heads)):
            texts += [f"result {number - 1}"] * (number > 1) + [f"turn {number}"]
        return texts

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        """A cold worker reads the whole context, and no more than it may."""
        if hasattr(self, "heads"):
            assert self.cold() == self.expected()


CheckpointMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
TestCheckpointMachine = CheckpointMachine.TestCase
