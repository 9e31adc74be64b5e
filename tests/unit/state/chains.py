"""Chains of checkpoints for tests: made as a run makes them, without a run."""

from typing import Any

from activities.checkpoints import Checkpoint, Checkpoints, Inputs, Outputs
from activities.context import Contexts, tool_message, user_message
from activities.entries import Entries
from activities.segments import Segments
from activities.store import Store
from workflows.keys import checkpoint_key
from workflows.records import Head, Usage

THREAD = "run-83.9c41d07be2f5"
BRANCH = "0a1b2c3d"


class Chain:
    """Writes one run's records, turn by turn. A new object over the same store is a cold worker."""

    def __init__(self, store: Store, thread: str = THREAD, branch: str = BRANCH, **options: Any) -> None:
        self.store, self.thread, self.branch = store, thread, branch
        self.checkpoints = Checkpoints(store, **options)
        self.entries = Entries(store)
        self.segments = Segments(store, self.checkpoints, self.entries)
        self.contexts = Contexts(self.checkpoints, self.entries, self.segments)
        self.head: Head | None = None
        self.at = "2026-11-29T16:00:00.000+00:00"

    async def open(self, goal: str = "do it") -> Checkpoint:
        """Checkpoint 0."""
        ref = await self.entries.put(self.thread, user_message(goal), goal)
        saved = await self.checkpoints.save(self.record(0, None, [ref.sha256]))
        self.head = saved.head()
        return saved

    async def turn(self, text: str = "", *, base: bool = False, said: str = "") -> Checkpoint:
        """The next checkpoint: one call, and with the next turn its result of this text."""
        assert self.head is not None
        number = self.head.sequence + 1
        new = []
        if base:
            new = [user_message(f"handoff before turn {number}")]
        elif number > 1:
            new = [tool_message(f"{number - 1}.0", "read", text or f"result {number - 1}")]
        refs = [await self.entries.put(self.thread, body, "") for body in new]
        before = [] if base else await self.contexts.load(self.thread, self.head)
        record = self.record(number, self.head, [ref.sha256 for ref in refs], base=base, said=said)
        added = sum(ref.bytes for ref in refs)
        saved = await self.contexts.commit(record, self.head, [*before, *new], added)
        self.head = saved.head()
        return saved

    async def turns(self, count: int) -> None:
        """Several."""
        for _ in range(count):
            await self.turn()

    def record(
        self, number: int, parent: Head | None, entries: list[str], *, base: bool = False, said: str = ""
    ) -> Checkpoint:
        """A record, not yet published."""
        call = {"id": f"{number}.0", "provider_id": f"c{number}", "tool": "read", "arguments": "{}"}
        message = {"role": "assistant", "text": said or f"turn {number}", "calls": [call]}
        link = None
        if parent is not None:
            link = {"key": checkpoint_key(self.thread, parent.branch, parent.sequence), "sha256": parent.sha256}
        return Checkpoint(
            thread=self.thread,
            branch=self.branch,
            sequence=number,
            parent=link,
            step_id=f"turn-{number}" if number else "open",
            inputs=Inputs(entries=entries, request_digest=f"request {number}"),
            outputs=Outputs(message=message if number else None),
            effects=[f"fx:v1:{number}"] if number else [],
            usage=Usage(requests=1),
            timestamp=self.at,
            base=base,
        )


class Counting:
    """A store that counts its reads, by the folder of the thread that they go to."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.reads: list[str] = []

    async def put(self, key: str, data: bytes) -> None:
        await self.inner.put(key, data)

    async def put_new(self, key: str, data: bytes) -> bool:
        return await self.inner.put_new(key, data)

    async def get(self, key: str) -> bytes | None:
        self.reads.append(key.split("/")[3])
        return await self.inner.get(key)

    async def keys(self, prefix: str) -> list[str]:
        return await self.inner.keys(prefix)

    async def delete(self, prefix: str) -> int:
        return await self.inner.delete(prefix)
