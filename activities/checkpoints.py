"""Checkpoints: one record a turn, a hash chain, published with put-if-absent.

The record of a turn is the commit of that turn. A retried attempt finds it and returns what it says instead of asking
the model again. The number in the name, the number in the record and the digest must agree; whatever does not fit stops
the run as CheckpointDamaged. An older checkpoint is never taken instead: the newer one may have recorded effects.
"""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.canonical import digest
from activities.errors import CheckpointConflict, CheckpointDamaged
from activities.migrations import SCHEMA, STEPS, Step, UnknownSchema, migrate
from activities.origin import find_origin
from activities.store import Store
from workflows.keys import checkpoint_key, folder
from workflows.records import Files, Head, Usage

READ_AHEAD = 32
REMEMBERED, LARGE = 256, 65_536
"""Records that a worker keeps as they were read and checked last (the newest of a run is read three times in a turn),
and the bytes from which it keeps none."""

_NAME = re.compile(r"([A-Za-z0-9_-]{1,80})/(\d{8,})\.json")


class Inputs(BaseModel):
    """What was new in the context before the turn (digests of entries), what made up the request, and what the
    workspace held."""

    entries: list[str] = Field(default_factory=list)
    request_digest: str = ""
    files: Files = Files()


class Outputs(BaseModel):
    """What the turn gave: the model's message in full, and the judged turn as the workflow got it."""

    message: dict[str, Any] | None = None
    turn: dict[str, Any] | None = None


class Checkpoint(BaseModel):
    """One record. `sha256` is the digest of the rest; `raw` (as stored) and `home` (the thread that it was read from: a
    fork holds records of others) are not part of it.

    `segment` names the newest segment before this record, `tail` the bytes of bodies since. `base`: the context begins
    anew with this record's entries, and what was said before is not read any more (a session starts here).
    """

    model_config = ConfigDict(extra="ignore")

    schema_version: int = Field(SCHEMA, alias="schema")
    thread: str
    branch: str
    sequence: int = Field(ge=0)
    parent: dict[str, str] | None
    step_id: str
    status: Literal["pending", "in_progress", "completed", "failed"] = "completed"
    inputs: Inputs = Inputs()
    outputs: Outputs = Outputs()
    error_message: str | None = None
    effects: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
    usage: Usage = Usage()
    timestamp: str
    segment: Head | None = None
    tail: int = 0
    base: bool = False
    sha256: str = ""
    raw: bytes = Field(b"", exclude=True, repr=False)
    home: str = Field("", exclude=True, repr=False)

    @property
    def size(self) -> int:
        """Bytes, as stored."""
        return len(self.raw)

    def head(self) -> Head:
        """The name of this checkpoint, with the digest that its content must have."""
        return Head(branch=self.branch, sequence=self.sequence, sha256=self.sha256)

    def key(self) -> str:
        """Where it stands."""
        return checkpoint_key(self.place, self.branch, self.sequence)

    @property
    def place(self) -> str:
        """The thread in whose folder it stands, and its bodies."""
        return self.home or self.thread


def now_iso() -> str:
    """The time as ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Checkpoints:
    """The checkpoints of all threads, over one store. `steps` lead older schemas to `newest`."""

    def __init__(self, store: Store, steps: Mapping[int, Step] = STEPS, newest: int = SCHEMA) -> None:
        self._store, self._steps, self._newest = store, steps, newest
        self._lineages: dict[str, set[str]] = {}
        self._checked: OrderedDict[str, Checkpoint] = OrderedDict()

    async def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Publishes a record and returns what stands under its key: this one, or the earlier one of the same request.

        Raises CheckpointConflict when a record of another request stands there.
        """
        body = {**checkpoint.model_dump(mode="json", by_alias=True, exclude={"sha256"}), "schema": self._newest}
        body["sha256"] = digest(body)
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        if await self._store.put_new(checkpoint.key(), data):
            update = {"sha256": body["sha256"], "raw": data, "home": checkpoint.thread}
            return self._remember(checkpoint.key(), checkpoint.model_copy(update=update))
        found = await self.find(checkpoint.thread, checkpoint.branch, checkpoint.sequence)
        if found is None:
            raise CheckpointDamaged(f"checkpoint {checkpoint.key()} was there and is gone")
        same_request(found, checkpoint.inputs.request_digest)
        return found

    async def find(self, thread: str, branch: str, sequence: int) -> Checkpoint | None:
        """The record under that name, checked against it; None when there is none."""
        key = checkpoint_key(thread, branch, sequence)
        data = await self._store.get(key)
        if data is None:
            return None
        checked = self._checked.get(key)
        if checked is not None and checked.raw == data:
            return checked
        record = self.read(data, key, thread, branch, sequence)
        if record.thread != thread and record.thread not in await self._lineage(thread):
            raise CheckpointDamaged(f"checkpoint {key} says that it is {record.thread}/{branch}/{sequence}")
        return self._remember(key, record)

    def _remember(self, key: str, record: Checkpoint) -> Checkpoint:
        """Keeps a record that was checked. It is read again each time all the same, and is the same byte by byte."""
        if record.size > LARGE:
            return record
        self._checked[key] = record
        self._checked.move_to_end(key)
        while len(self._checked) > REMEMBERED:
            self._checked.popitem(last=False)
        return record

    async def _lineage(self, thread: str) -> set[str]:
        """The threads whose records a fork holds as copies."""
        if thread not in self._lineages:
            origin = await find_origin(self._store, thread)
            if origin is None:
                return set()
            self._lineages[thread] = set(origin.ancestry)
        return self._lineages[thread]

    async def load(self, thread: str, head: Head) -> Checkpoint:
        """The record that `head` names. Raises CheckpointDamaged unless it is there with that very digest."""
        found = await self.find(thread, head.branch, head.sequence)
        key = checkpoint_key(thread, head.branch, head.sequence)
        if found is None:
            raise CheckpointDamaged(f"checkpoint {key} is missing from the store")
        if not head.sha256 or found.sha256 != head.sha256:
            raise CheckpointDamaged(f"checkpoint {key} is not the one that the run recorded: its digest differs")
        return found

    async def chain(self, thread: str, head: Head, after: int = -1) -> list[Checkpoint]:
        """The records from number `after` + 1 to `head`, oldest first, each link checked."""
        found: list[Checkpoint] = []
        want: Head | None = head
        while want is not None and want.sequence > after:
            numbers = range(want.sequence, max(after, want.sequence - READ_AHEAD), -1)
            guesses = [self.find(thread, want.branch, number) for number in numbers]
            ahead: list[Any] = await asyncio.gather(*guesses, return_exceptions=True)
            for record in ahead:
                branch = want.branch
                found.append(_linked(record, thread, want))
                want = parent_head(found[-1])
                if want is None or want.branch != branch:
                    break  # what was read ahead is of another branch than the chain goes on with
        return found[::-1]

    async def names(self, thread: str) -> list[tuple[str, int]]:
        """Branch and number of every record, in numeric order; names that are no checkpoint's are passed over."""
        prefix = f"{folder(thread)}/checkpoints/"
        found = []
        for key in await self._store.keys(prefix.rstrip("/")):
            match = _NAME.fullmatch(key.removeprefix(prefix))
            if match and checkpoint_key(thread, match[1], int(match[2])) == key:
                found.append((match[1], int(match[2])))
        return sorted(found, key=lambda pair: (pair[1], pair[0]))

    def read(self, data: bytes, key: str, thread: str, branch: str, sequence: int) -> Checkpoint:
        """Decodes a record and checks schema, digest and number. Raises CheckpointDamaged."""
        record = self.decode(data, key, thread, vouched=False)
        if (record.branch, record.sequence) != (branch, sequence):
            said = f"{record.thread}/{record.branch}/{record.sequence}"
            raise CheckpointDamaged(f"checkpoint {key} says that it is {said}")
        return record

    def decode(self, data: bytes, key: str, home: str, *, vouched: bool) -> Checkpoint:
        """Decodes a record and checks its schema, and its digest unless another digest vouches for these bytes."""
        try:
            body = json.loads(data)
            claimed = body.pop("sha256")
            if not claimed or not isinstance(claimed, str):
                raise CheckpointDamaged(f"checkpoint {key} is damaged: it has no digest")
            written, body = body, migrate(body, self._steps, self._newest)  # a future schema may digest in another way
            if not vouched and digest(written) != claimed:
                raise CheckpointDamaged(f"checkpoint {key} is damaged: its content does not have its digest")
            return Checkpoint.model_validate({**body, "sha256": claimed, "raw": data, "home": home})
        except UnknownSchema as error:
            raise CheckpointDamaged(f"checkpoint {key} cannot be read: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as error:
            raise CheckpointDamaged(f"checkpoint {key} cannot be read: {type(error).__name__}") from None


def _linked(record: Checkpoint | BaseException | None, thread: str, want: Head) -> Checkpoint:
    """The record, if it is the one that is wanted."""
    key = checkpoint_key(thread, want.branch, want.sequence)
    if isinstance(record, BaseException):
        raise record
    if record is None:
        raise CheckpointDamaged(f"checkpoint {key} is missing from the store: there is a gap")
    if not want.sha256 or record.sha256 != want.sha256:
        raise CheckpointDamaged(f"checkpoint {key} is altered: its digest is not the one that the next record names")
    return record


def parent_head(record: Checkpoint) -> Head | None:
    """The checkpoint before this one; None for the opening. Raises CheckpointDamaged for a malformed link."""
    if record.parent is None:
        if record.sequence != 0:
            raise CheckpointDamaged(f"checkpoint {record.sequence} of {record.thread} has no parent: there is a gap")
        return None
    prefix = f"{folder(record.thread)}/checkpoints/"
    match = _NAME.fullmatch(record.parent.get("key", "").removeprefix(prefix))
    if match is None or int(match[2]) != record.sequence - 1:
        raise CheckpointDamaged(f"checkpoint {record.sequence} of {record.thread} names a parent that is not before it")
    return Head(branch=match[1], sequence=int(match[2]), sha256=record.parent.get("sha256", ""))


def same_request(found: Checkpoint, request_digest: str) -> None:
    """Raises CheckpointConflict unless the record answers that very request."""
    if found.inputs.request_digest != request_digest:
        raise CheckpointConflict(
            f"checkpoint {found.key()} belongs to another request; neither is taken. Fork from an earlier one"
        )
