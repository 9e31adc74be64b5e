"""Which run, which of its starts and which path a person means, and what stands there: for forks."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from activities.checkpoints import Checkpoint, Checkpoints, parent_head
from activities.errors import CheckpointDamaged, Failure, InvalidInput
from activities.origin import find_origin
from activities.segments import Segments
from activities.store import Store
from workflows.keys import safe_id
from workflows.records import Head


@dataclass(frozen=True)
class Point:
    """One checkpoint, and the one that comes after it on the path of the run, if there is one."""

    thread: str
    record: Checkpoint
    after: Checkpoint | None


_BEGUN = {"checkpoints", "effects", "handoffs"}
"""The folders that a start has which began: one of these without any checkpoint is damaged."""


async def find_thread(store: Store, run: str) -> str | None:
    """The thread that a person means: `<workflow id>` (its newest start) or `<workflow id>.<start>`. Raises
    CheckpointDamaged where several starts are there and of one nothing can be read: it may be the newest."""
    for workflow_id, dot, start in ((run, "", ""), run.rpartition(".")):
        if not workflow_id or (dot and not start):
            continue
        prefix = f"threads/{safe_id(workflow_id)}/"
        keys = await store.keys(prefix.rstrip("/"))
        starts = {key.removeprefix(prefix).partition("/")[0] for key in keys if _BEGUN & set(key.split("/"))}
        threads = [f"{safe_id(workflow_id)}.{each}" for each in sorted(starts) if not start or each == start]
        if len(threads) == 1:
            return threads[0]
        if threads:
            return max([(await _opened(store, thread), thread) for thread in threads])[1]
    return None


def workflow_of(run: str, thread: str) -> str:
    """The workflow id in the name by which a thread was found: the start may be part of that."""
    return run if safe_id(run) == thread.rpartition(".")[0] else run.rpartition(".")[0]


async def _opened(store: Store, thread: str) -> str:
    """When a thread was opened, or so soon after that as a record of its own tells: no two starts of an id overlap. A
    fork's first records are as old as its source."""
    with contextlib.suppress(CheckpointDamaged):
        if (origin := await find_origin(store, thread)) is not None:
            return origin.at
    checkpoints = Checkpoints(store)
    for branch, sequence in await checkpoints.names(thread):
        with contextlib.suppress(CheckpointDamaged):
            record = await checkpoints.find(thread, branch, sequence)
            if record is not None and record.thread == thread:
                return record.timestamp
    raise CheckpointDamaged(
        f"no checkpoint of the start {thread} can be read, so which start is the newest is not known: restore it from "
        "a backup of the store, or name the start that you mean as <workflow id>.<start>"
    )


async def last_branch(checkpoints: Checkpoints, thread: str, ends: Mapping[str, tuple[int, int]]) -> str:
    """The branch that was written to last, of those with their first and last numbers: after a reset that is not the
    longest one. Raises CheckpointDamaged where there are several and of one nothing can be read: it may be that."""
    if len(ends) == 1:
        return next(iter(ends))
    return max([(await _written(checkpoints, thread, name, *ends[name]), ends[name][1], name) for name in ends])[2]


async def _written(checkpoints: Checkpoints, thread: str, branch: str, first: int, last: int) -> str:
    """When a branch was written to last, as its newest record that can be read tells: a path goes on after others have
    ended, so any of its records is later than all of theirs."""
    for number in range(last, first - 1, -1):
        with contextlib.suppress(CheckpointDamaged):
            record = await checkpoints.find(thread, branch, number)
            if record is not None:
                return record.timestamp
    raise CheckpointDamaged(
        f"no checkpoint of branch {branch} of {thread} can be read, so which path was written to last is not known: "
        "restore it from a backup of the store, or name the branch that you mean (`branch`)"
    )


class Sources:
    """Looks for checkpoints by number. Nothing else of the path needs to be whole for that: an older checkpoint is what
    a person turns to when a newer one is damaged."""

    def __init__(self, store: Store, checkpoints: Checkpoints, segments: Segments) -> None:
        self._store, self._checkpoints, self._segments = store, checkpoints, segments

    async def point(self, run: str, number: int, branch: str | None = None) -> Point:
        """The checkpoint of that number on the path that was written to last, or on the path that ends with `branch`.
        Raises InvalidInput."""
        try:
            thread = await find_thread(self._store, run)
            if thread is None:
                raise InvalidInput(f"fork: there is no run {run!r} in the store (or it is being deleted)")
            path = await self._path(thread, branch)
        except CheckpointDamaged as error:
            raise InvalidInput(f"fork: {error.message}") from None
        held = next((name for name, (first, last) in path.items() if first <= number <= last), None)
        if held is None:
            most, least = max(last for _, last in path.values()), min(first for first, _ in path.values())
            if number < least:
                raise damaged(run, least, CheckpointDamaged("what was before it is not known"))
            raise InvalidInput(f"fork: run {run!r} has no checkpoint {number}: its last one is {most}")
        try:
            record = await self._checkpoints.find(thread, held, number)
        except CheckpointDamaged as error:
            raise damaged(run, number, error) from None
        if record is None:
            raise damaged(run, number, CheckpointDamaged("it is missing from the store"))
        return Point(thread, record, await self._after(thread, path, record))

    async def whole(self, run: str, thread: str, head: Head) -> list[Checkpoint]:
        """All records up to and with that one, oldest first, each link checked. Raises InvalidInput."""
        try:
            return await self._segments.history(thread, head, whole=True)
        except CheckpointDamaged as error:
            raise damaged(run, head.sequence, error) from None

    async def _path(self, thread: str, branch: str | None) -> dict[str, tuple[int, int]]:
        """The branches that lead to the newest record (of `branch`), newest first, each with the first and last number
        of its part."""
        ends: dict[str, tuple[int, int]] = {}
        for name, number in await self._checkpoints.names(thread):
            ends[name] = (ends.get(name, (number, 0))[0], number)
        if branch is not None and branch not in ends:
            raise InvalidInput(f"fork: field `branch`: {thread} has no branch {branch!r}; there are: {', '.join(ends)}")
        at: str | None = branch or await last_branch(self._checkpoints, thread, ends)
        last, path = ends[str(at)][1], dict[str, tuple[int, int]]()
        while at is not None and at not in path:
            first = ends[at][0]
            path[at] = (first, last)
            parent = await self._parent(thread, at, first)
            at, last = (parent.branch, parent.sequence) if parent and parent.branch in ends else (None, 0)
        return path

    async def _parent(self, thread: str, branch: str, first: int) -> Head | None:
        try:
            record = await self._checkpoints.find(thread, branch, first)
            return parent_head(record) if record else None
        except CheckpointDamaged:
            return None

    async def _after(self, thread: str, path: Mapping[str, tuple[int, int]], record: Checkpoint) -> Checkpoint | None:
        """The next record, as far as it can be had: it only tells what was answered."""
        number = record.sequence + 1
        for name, (first, last) in path.items():
            if first <= number <= last:
                try:
                    found = await self._checkpoints.find(thread, name, number)
                    return found if found and parent_head(found) == record.head() else None
                except CheckpointDamaged:
                    return None
        return None


def damaged(run: str, number: int, error: Failure) -> InvalidInput:
    """A checkpoint that cannot be forked from. It is not what is parked for: the person can name another one."""
    return InvalidInput(
        f"fork: checkpoint {number} of {run!r} is damaged ({error.message}): restore it from a backup of the store, or "
        "fork from an earlier one"
    )
