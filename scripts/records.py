"""What the store holds of one run, for the commands that look at it: which thread is meant, and what is damaged."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from activities.checkpoints import Checkpoint, Checkpoints, parent_head
from activities.context import Contexts
from activities.entries import Entries
from activities.errors import CheckpointDamaged, IncompatiblePayload, WorkspaceUnavailable
from activities.ledger import Ledger
from activities.origin import find_origin, find_past
from activities.segments import Segments
from activities.sessions import read_handoff, session_of
from activities.sources import find_thread, last_branch
from activities.store import Store
from activities.workspaces import Workspaces
from scripts.commands.running import Refused
from workflows.keys import checkpoint_key, folder, safe_id


@dataclass(frozen=True)
class Line:
    """One checkpoint, without any of its content. `state` is `ok`, or what is wrong."""

    branch: str
    sequence: int
    schema: int | None
    bytes: int
    sha256: str
    step: str
    status: str
    state: str

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.state == "ok"

    def view(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


async def thread_of(store: Store, run: str) -> str:
    """The thread that a person means: `<workflow id>` (its newest start) or `<workflow id>.<start>`. Raises Refused."""
    try:
        thread = await find_thread(store, run)
    except CheckpointDamaged as error:
        raise Refused(error.message) from None
    if thread is None and any("/boundaries/" in key for key in await store.keys(f"threads/{safe_id(run)}")):
        raise Refused(f"{run} is a project; it and its sessions, which are runs: perdure project show {run}")
    if thread is None:
        raise Refused(f"the store {store!r} holds no checkpoint of {run!r}")
    return thread


async def newest(store: Store, thread: str) -> Checkpoint:
    """The last record of the branch that was written to last: after a reset that is not the longest one. Raises
    Refused, and CheckpointDamaged."""
    checkpoints, ends = Checkpoints(store), dict[str, tuple[int, int]]()
    for branch, sequence in await checkpoints.names(thread):
        ends[branch] = ends.get(branch, (sequence, 0))[0], sequence
    if not ends:
        raise Refused(f"{thread} has no checkpoint yet")
    branch = await last_branch(checkpoints, thread, ends)
    record = await checkpoints.find(thread, branch, ends[branch][1])
    if record is None:
        raise Refused(f"{thread} is being deleted")
    return record


async def survey(store: Store, thread: str) -> list[Line]:
    """Every checkpoint of a thread, in numeric order, each checked by itself and against the one before it."""
    checkpoints = Checkpoints(store)
    lines: list[Line] = []
    known: dict[tuple[str, int], str] = {}
    for branch, sequence in await checkpoints.names(thread):
        size = len(await store.get(checkpoint_key(thread, branch, sequence)) or b"")
        try:
            record = await checkpoints.find(thread, branch, sequence)
            if record is None:
                raise CheckpointDamaged("it was listed and is gone")
            state = _against_parent(record, known)
        except CheckpointDamaged as error:
            lines.append(Line(branch, sequence, None, size, "", "", "", error.message))
            continue
        known[branch, sequence] = record.sha256
        lines.append(
            Line(branch, sequence, record.schema_version, size, record.sha256, record.step_id, record.status, state)
        )
    return lines


def _against_parent(record: Checkpoint, known: dict[tuple[str, int], str]) -> str:
    parent = parent_head(record)
    if parent is None:
        return "ok"
    held = known.get((parent.branch, parent.sequence))
    if held is None:
        return f"its parent {parent.branch}/{parent.sequence} is missing or damaged: there is a gap"
    return "ok" if held == parent.sha256 else f"its parent {parent.branch}/{parent.sequence} is altered"


async def walk(store: Store, thread: str, lines: Sequence[Line]) -> list[str]:
    """What is wrong beyond single records: bodies and segments, along the chain of each branch's newest checkpoint;
    what handoffs left, and what a fork keeps of its source."""
    checkpoints, entries = Checkpoints(store), Entries(store)
    contexts = Contexts(checkpoints, entries, Segments(store, checkpoints, entries))
    faults: list[str] = []
    handed, beside = await _beside(store, thread)
    newest = {line.branch: line for line in lines}
    for branch, line in newest.items():
        try:
            record = await checkpoints.find(thread, branch, line.sequence)
            if record is None:
                continue
            await contexts.read(thread, record.head())
            session, before = 1, ""
            for each in await checkpoints.chain(thread, record.head()):
                for digest in each.inputs.entries:
                    await entries.fetch(thread, digest)
                said = await entries.messages(thread, each.inputs.entries)
                if (number := session_of(said)) > session:
                    session = number
                    if before not in handed and not beside:  # else it is named already
                        faults.append(f"the record of the handoff before checkpoint {each.sequence} is gone")
                before = each.head().sha256
            await Workspaces(store, entries, Path("-")).check(thread, record.inputs.files)  # no folder is looked at
        except (CheckpointDamaged, WorkspaceUnavailable) as error:
            faults.append(error.message)
    return list(dict.fromkeys([*faults, *beside]))


async def _beside(store: Store, thread: str) -> tuple[set[str], list[str]]:
    """The checkpoints that a handoff followed, by digest; and what is wrong with the records of handoffs, and with
    those that a fork keeps of its source."""
    handed, faults = set[str](), list[str]()
    ledger = Ledger(store)
    wanted: list[Awaitable[Any]] = [find_origin(store, thread), find_past(store, thread)]
    wanted += [read_handoff(store, key) for key in await store.keys(f"{folder(thread)}/handoffs")]
    wanted += [ledger.standing(thread, f"{thread}:{name}") for name in await ledger.names(thread)]
    for found in await asyncio.gather(*wanted, return_exceptions=True):
        if isinstance(found, CheckpointDamaged | IncompatiblePayload):
            faults.append(found.message)
        elif isinstance(found, BaseException):
            raise found
        elif isinstance(found, dict):
            handed.add(str(found.get("facts", {}).get("checkpoint", {}).get("sha256")))
    return handed, faults


def place(thread: str) -> str:
    """Where it all lies."""
    return folder(thread)
