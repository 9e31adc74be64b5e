"""The context of a run: what the model has been told, as neutral messages, rebuilt from the checkpoint chain.

Three kinds of message: `{"role": "user", "text"}`, `{"role": "assistant", "text", "calls": [{"id", "provider_id",
"tool", "arguments"}]}` where arguments is JSON text, and `{"role": "tool", "call", "tool", "text"}`.

A worker keeps the decoded context of the runs that it served last, so that the hot path reads nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from activities.checkpoints import Checkpoint, Checkpoints
from activities.entries import Entries
from activities.errors import CheckpointDamaged
from workflows.records import Head, Item, Ref

Messages = list[dict[str, Any]]
CACHED_THREADS = 200


class Contexts:
    """Loads and remembers contexts."""

    def __init__(self, checkpoints: Checkpoints, entries: Entries) -> None:
        self._checkpoints, self._entries = checkpoints, entries
        self._cache: OrderedDict[str, tuple[str, Messages]] = OrderedDict()

    async def load(self, thread: str, head: Head) -> Messages:
        """The context up to and with `head`. Raises CheckpointDamaged for a chain that does not hold."""
        held = self._cache.get(thread)
        if held is not None and held[0] == head.sha256:
            return held[1]
        chain = await self._checkpoints.chain(thread, head)
        parts = await asyncio.gather(*(self.increment(record) for record in chain))
        messages = [message for part in parts for message in part]
        self.keep(thread, head, messages)
        return messages

    async def increment(self, record: Checkpoint) -> Messages:
        """What one checkpoint adds: its new entries, then the model's message."""
        messages = await self._entries.get_all(record.thread, record.inputs.entries)
        return [*messages, record.outputs.message] if record.outputs.message is not None else messages

    def keep(self, thread: str, head: Head, messages: Messages) -> None:
        """Remembers the context that ends with `head`."""
        self._cache[thread] = (head.sha256, messages)
        self._cache.move_to_end(thread)
        while len(self._cache) > CACHED_THREADS:
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
