"""The context of a run: what the model has been told, as neutral messages, rebuilt from the checkpoint chain.

Three kinds of message: `{"role": "user", "text"}`, `{"role": "assistant", "text", "calls": [{"id", "provider_id",
"tool", "arguments"}]}` where arguments is JSON text, and `{"role": "tool", "call", "tool", "text"}`.

A worker keeps the decoded context of the runs that it served last, so that the hot path reads nothing.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from activities.checkpoints import Checkpoint, Checkpoints
from activities.entries import Entries
from activities.errors import CheckpointDamaged, StoreUnavailable
from activities.segments import Segments, is_due
from workflows.records import Head, Item, Ref

Messages = list[dict[str, Any]]
CACHED_BYTES = 200_000_000


@dataclass(frozen=True)
class Held:
    """A context with the record that it ends with. `size`: bytes of its bodies, about."""

    record: Checkpoint
    messages: Messages
    size: int


class Contexts:
    """Loads, extends and remembers contexts."""

    def __init__(self, checkpoints: Checkpoints, entries: Entries, segments: Segments) -> None:
        self._checkpoints, self._entries, self._segments = checkpoints, entries, segments
        self._cache: OrderedDict[str, Held] = OrderedDict()

    async def load(self, thread: str, head: Head) -> Messages:
        """The context up to and with `head`. Raises CheckpointDamaged for a chain that does not hold."""
        return (await self._held(thread, head)).messages

    async def _held(self, thread: str, head: Head) -> Held:
        held = self._cache.get(thread)
        if held is None or held.record.head() != head:
            held = await self.read(thread, head)
            self._keep(held)
        return held

    async def read(self, thread: str, head: Head) -> Held:
        """The context from the store, whatever is remembered."""
        records = await self._segments.history(thread, head)
        messages = await self.messages(records)
        return Held(records[-1], messages, size_of(messages))

    async def messages(self, records: Sequence[Checkpoint]) -> Messages:
        """The context that records hold, from the last base among them on."""
        start = max((index for index, record in enumerate(records) if record.base), default=0)
        parts = await asyncio.gather(*(self.increment(record) for record in records[start:]))
        return [message for part in parts for message in part]

    def adopt(self, thread: str, record: Checkpoint, messages: Messages) -> None:
        """Remembers a context under the name of a thread that it was copied to."""
        self._keep(Held(record.model_copy(update={"home": thread}), messages, size_of(messages)))

    async def increment(self, record: Checkpoint) -> Messages:
        """What one checkpoint adds: its new entries, then the model's message."""
        messages = await self._entries.messages(record.place, record.inputs.entries)
        return [*messages, record.outputs.message] if record.outputs.message is not None else messages

    async def commit(self, record: Checkpoint, parent: Head, before: Messages, added: int) -> Checkpoint:
        """Publishes the record that comes after `parent`, and gives what stands there. `before` is the context of which
        it is the answer, `added` the bytes of bodies that are new in it. Raises CheckpointConflict."""
        held = await self._held(record.thread, parent)
        segment = await self._segments.after(held.record)
        tail = added + (0 if is_due(held.record) else held.record.tail)
        saved = await self._checkpoints.save(record.model_copy(update={"segment": segment, "tail": tail}))
        said = saved.outputs.message  # the saved one's: another attempt may have been first
        self._keep(Held(saved, before if said is None else [*before, said], held.size + added + saved.size))
        with contextlib.suppress(StoreUnavailable):  # the turn is published; the next one makes up for it
            await self._segments.after(saved)
        return saved

    def _keep(self, held: Held) -> None:
        self._cache[held.record.place] = held
        self._cache.move_to_end(held.record.place)
        while len(self._cache) > 1 and sum(each.size for each in self._cache.values()) > CACHED_BYTES:
            self._cache.popitem(last=False)

    async def store_items(self, thread: str, items: Sequence[Item]) -> tuple[list[Ref], Messages]:
        """The new items as stored entries: texts that came through the workflow are stored now."""
        refs = list(await asyncio.gather(*(self._store(thread, item) for item in items)))
        return refs, await self._entries.get_all(thread, [ref.sha256 for ref in refs])

    async def _store(self, thread: str, item: Item) -> Ref:
        if item.ref is not None:
            return item.ref
        text = item.text or ""
        body = user_message(text, item.by) if item.call is None else tool_message(item.call, item.tool or "", text)
        return await self._entries.put(thread, body, text)


def size_of(messages: Messages) -> int:
    """Characters of the texts."""
    return sum(len(str(message.get("text"))) for message in messages)


def user_message(text: str, by: str | None = None) -> dict[str, Any]:
    """A message of a person (or of the system, in a person's place)."""
    return {"role": "user", "text": text} if by is None else {"role": "user", "text": text, "by": by}


def tool_message(call: str, tool: str, text: str) -> dict[str, Any]:
    """The one answer to a call."""
    return {"role": "tool", "call": call, "tool": tool, "text": text}


def check(messages: Messages) -> None:
    """Raises CheckpointDamaged unless the context may be sent: starts with a user message, every call has exactly one
    answer, in call order, before anything else, and no call id occurs twice."""
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if not waiting or message.get("call") != waiting[0]:
                raise CheckpointDamaged(
                    f"message {index} answers {message.get('call')!r}, next to answer: {waiting[:1]}"
                )
            waiting.pop(0)
            continue
        if waiting:
            raise CheckpointDamaged(f"message {index} ({role}) comes before the answer to call {waiting[0]}")
        if role == "assistant":
            waiting = [call["id"] for call in message.get("calls", [])]
            if len(set(waiting)) != len(waiting) or seen.intersection(waiting):
                raise CheckpointDamaged(f"message {index} uses a call id twice")
            seen.update(waiting)
        elif role != "user":
            raise CheckpointDamaged(f"message {index} has the role {role!r}")
        if index == 0 and role != "user":
            raise CheckpointDamaged("the context does not start with a user message")
    if waiting:
        raise CheckpointDamaged(f"call {waiting[0]} is not answered")
