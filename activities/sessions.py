"""Session boundaries as data: when a context is full, what the next one begins with, and how its middle is left out."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from activities.canonical import digest
from activities.context import Messages
from activities.entries import Entries
from activities.errors import CheckpointDamaged
from activities.manifest import Manifest
from activities.store import Store
from activities.world import World
from workflows.records import Ref, TurnRequest

CHARACTERS_PER_TOKEN = 4
"""About. A tokenizer would fetch its tables from the net at run time; what is counted so is marked as an estimate."""

LOOSE, PART = 8, 128
"""Of the messages that a context begins with: so many are an entry each, and of more than that so many are one."""

TAIL_SHARE = 0.25
"""The part of a compacted context that stays word for word at its end."""


_MARK = re.compile(r"\[session (\d+), turns 1 to \d+ are summed up here\]\n")


def session_mark(number: int, turns: int) -> str:
    """The line with which the message begins that a handoff leaves in place of what it sums up."""
    return f"[session {number}, turns 1 to {turns} are summed up here]\n"


def session_of(messages: Iterable[dict[str, Any]]) -> int:
    """The session that messages were said in: the one of the newest handoff among them, 1 without any. A context that
    begins anew without a newer one was edited."""
    ours = (message for message in messages if message["role"] == "user" and "by" not in message)
    found = (_MARK.match(str(message.get("text", ""))) for message in ours)
    return max((int(mark[1]) for mark in found if mark), default=1)


@dataclass(frozen=True)
class Beginning:
    """What a session begins with: entries, and the messages in them."""

    refs: list[Ref]
    messages: Messages


async def beginning(entries: Entries, thread: str, base: str) -> Beginning:
    """Reads the list of entries that a handoff has made. Raises CheckpointDamaged."""
    digests = list((await entries.get(thread, base))["entries"])
    messages = await entries.messages(thread, digests)
    return Beginning([Ref(sha256=each, bytes=0, preview="") for each in digests], messages)


async def read_handoff(store: Store, key: str) -> dict[str, Any] | None:
    """The record of a handoff; None when there is none. Raises CheckpointDamaged."""
    data = await store.get(key)
    if data is None:
        return None
    try:
        record: dict[str, Any] = json.loads(data)
        if digest({name: each for name, each in record.items() if name != "sha256"}) != record["sha256"]:
            raise CheckpointDamaged(f"handoff {key} is damaged: its content does not have its digest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointDamaged(f"handoff {key} cannot be read: {type(error).__name__}") from None
    return record


async def begin(entries: Entries, thread: str, messages: Messages) -> str:
    """Stores messages as the entries of a beginning; gives the digest of their list.

    What comes before the agent's last message is put in parts: a thousand small objects are a thousand waits for the
    disk, or for a service. From that message on each is an entry of its own, in which a fork looks for the answers.
    """
    whole = [{key: value for key, value in message.items() if key != "compaction"} for message in messages]
    last = max((index for index, message in enumerate(whole) if message["role"] == "assistant"), default=0)
    before: Messages = whole[:last]
    if last > LOOSE:
        before = [{"messages": whole[start : min(start + PART, last)]} for start in range(0, last, PART)]
    refs = await asyncio.gather(*(entries.put(thread, each, "") for each in [*before, *whole[last:]]))
    listed = await entries.put(thread, {"entries": [ref.sha256 for ref in refs]}, "")
    return listed.sha256


async def fullness(
    world: World, manifest: Manifest, request: TurnRequest, context: Messages, new: Messages
) -> str | None:
    """Why the context is full, in words; None while it is not. The opening and a session's first turn never are, since
    a handoff could not make them smaller."""
    rules, limit = manifest.file.session, manifest.file.model[0].context_tokens
    if request.head.sequence == 0:
        return None
    used, estimated = await context_tokens(world, manifest, request, context, new)
    share = 1.0 if rules.boundary == "off" else rules.at
    if used < share * limit:
        return None
    how = "about " if estimated else ""
    return f"the context has {how}{used} tokens, and {share:.0%} of the model's {limit} are {share * limit:.0f}"


async def context_tokens(
    world: World, manifest: Manifest, request: TurnRequest, context: Messages, new: Messages
) -> tuple[int, bool]:
    """Tokens of the next request, and whether that is an estimate: the server's own count of the last request and its
    answer, and an estimate of what is new; without a count, an estimate of all."""
    last = (await world.checkpoints.load(request.thread, request.head)).usage
    if last.requests == 1 and not last.estimated and last.input_tokens:
        return last.input_tokens + last.output_tokens + estimate(new, manifest), bool(new)
    offered = len(json.dumps([tool.parameters for tool in manifest.tools])) + len(manifest.prompt)
    return estimate(context, manifest) + offered // CHARACTERS_PER_TOKEN, True


def estimate(messages: Messages, manifest: Manifest) -> int:
    """Tokens of messages, by their characters, tool results as far as they are shown."""
    most = manifest.file.limits.tool_output
    return sum(min(size(message), most) if message["role"] == "tool" else size(message) for message in messages) // (
        CHARACTERS_PER_TOKEN
    )


def size(message: dict[str, Any]) -> int:
    """Characters of a message, with the arguments of its calls."""
    return len(message["text"]) + sum(len(call["arguments"]) + len(call["tool"]) for call in message.get("calls", ()))


def groups(messages: Messages) -> list[Messages]:
    """The messages in pieces that must stay together: a call with its answers."""
    found: list[Messages] = []
    for message in messages:
        if message["role"] == "tool" and found:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def split_middle(context: Messages, keep: float = TAIL_SHARE) -> tuple[Messages, Messages, Messages]:
    """The first message, the middle, and an end of about that share of the whole (at least the last group)."""
    pieces = groups(context[1:])
    budget, total, start = keep * sum(map(size, context)), 0, max(0, len(pieces) - 1)
    while start > 0:
        total += sum(map(size, pieces[start]))
        if total + sum(map(size, pieces[start - 1])) > budget:
            break
        start -= 1
    return context[:1], _flat(pieces[:start]), _flat(pieces[start:])


def shorter(context: Messages) -> Messages:
    """The context without half of its middle, for a request that was too long; with a remark where it was."""
    pieces = groups(context[1:])
    left = len(pieces) // 4, len(pieces) - len(pieces) // 4
    remark = {"role": "user", "text": "[The middle of the conversation is left out here: it was too long.]"}
    return [context[0], *_flat(pieces[: left[0]]), remark, *_flat(pieces[left[1] :])]


def _flat(pieces: Sequence[Messages]) -> Messages:
    return [message for piece in pieces for message in piece]
