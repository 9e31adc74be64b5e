"""Checkpoints: one record a turn, a hash chain, published with put-if-absent.

The record of a turn is the commit of that turn. A retried attempt finds it and returns what it says instead of asking
the model again. The number in the name, the number in the record and the digest must agree; whatever does not fit stops
the run as CheckpointDamaged. An older checkpoint is never taken instead: the newer one may have recorded effects.
"""

import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.canonical import digest
from activities.errors import CheckpointConflict, CheckpointDamaged
from activities.store import Store
from workflows.keys import checkpoint_key, folder
from workflows.records import Head, Usage

SCHEMA = 1
READ_AHEAD = 32
_NAME = re.compile(r"(\d{8,})\.json")


class Inputs(BaseModel):
    """What was new in the context before the turn (digests of entries), and what made up the request."""

    entries: list[str] = Field(default_factory=list)
    request_digest: str = ""


class Outputs(BaseModel):
    """What the turn gave: the model's message in full, and the judged turn as the workflow got it."""

    message: dict[str, Any] | None = None
    turn: dict[str, Any] | None = None


class Checkpoint(BaseModel):
    """One record. `sha256` is the digest of the rest; `size` (bytes, as stored) is not part of it."""

    model_config = ConfigDict(extra="ignore")

    schema_version: int = Field(SCHEMA, alias="schema")
    thread: str
    branch: str
    sequence: int
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
    sha256: str = ""
    size: int = Field(0, exclude=True)

    def head(self) -> Head:
        """The name of this checkpoint, with the digest that its content must have."""
        return Head(branch=self.branch, sequence=self.sequence, sha256=self.sha256)


def now_iso() -> str:
    """The time as ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Checkpoints:
    """The checkpoints of all threads, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def save(self, checkpoint: Checkpoint) -> Checkpoint:
        """Publishes a record and returns what stands under its key: this one, or the earlier one of the same request.

        Raises CheckpointConflict when a record of another request stands there.
        """
        body = checkpoint.model_dump(mode="json", by_alias=True, exclude={"sha256"})
        body["sha256"] = digest(body)
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        key = checkpoint_key(checkpoint.thread, checkpoint.branch, checkpoint.sequence)
        if await self._store.put_new(key, data):
            return checkpoint.model_copy(update={"sha256": body["sha256"], "size": len(data)})
        found = await self.find(checkpoint.thread, checkpoint.branch, checkpoint.sequence)
        if found is None:
            raise CheckpointDamaged(f"checkpoint {key} was there and is gone")
        same_request(found, checkpoint.inputs.request_digest)
        return found

    async def find(self, thread: str, branch: str, sequence: int) -> Checkpoint | None:
        """The record under that name, checked against it; None when there is none."""
        key = checkpoint_key(thread, branch, sequence)
        data = await self._store.get(key)
        return None if data is None else read(data, key, thread, branch, sequence)

    async def load(self, thread: str, head: Head) -> Checkpoint:
        """The record that `head` names. Raises CheckpointDamaged unless it is there with that very digest."""
        found = await self.find(thread, head.branch, head.sequence)
        key = checkpoint_key(thread, head.branch, head.sequence)
        if found is None:
            raise CheckpointDamaged(f"checkpoint {key} is missing from the store")
        if found.sha256 != head.sha256:
            raise CheckpointDamaged(f"checkpoint {key} is not the one that the run recorded: its digest differs")
        return found

    async def chain(self, thread: str, head: Head) -> list[Checkpoint]:
        """All records from the opening to `head`, oldest first, each link checked."""
        found: list[Checkpoint] = []
        want: Head | None = head
        while want is not None:
            first = max(0, want.sequence - READ_AHEAD + 1)
            numbers = range(want.sequence, first - 1, -1)
            batch = await asyncio.gather(*(self.find(thread, want.branch, number) for number in numbers))
            for record, number in zip(batch, numbers, strict=True):
                if want is None or number != want.sequence or (record is None and number != numbers[0]):
                    break  # the chain went on to another branch, or below the branch's first record
                if record is None or record.sha256 != want.sha256:
                    raise CheckpointDamaged(f"checkpoint {checkpoint_key(thread, want.branch, number)} is altered")
                found.append(record)
                branch = want.branch
                want = parent_head(record)
                if want is not None and want.branch != branch:
                    break
        return found[::-1]

    async def names(self, thread: str) -> list[tuple[str, int]]:
        """Branch and number of every record, in numeric order; names that are no checkpoint are passed over."""
        prefix = f"{folder(thread)}/checkpoints/"
        pairs = []
        for key in await self._store.keys(prefix.rstrip("/")):
            branch, _, name = key.removeprefix(prefix).partition("/")
            if match := _NAME.fullmatch(name):
                pairs.append((branch, int(match[1])))
        return sorted(pairs, key=lambda pair: (pair[1], pair[0]))


def read(data: bytes, key: str, thread: str, branch: str, sequence: int) -> Checkpoint:
    """Decodes a record and checks schema, digest and name. Raises CheckpointDamaged."""
    try:
        body = json.loads(data)
        schema = body["schema"]
        if schema != SCHEMA:
            raise CheckpointDamaged(
                f"checkpoint {key} has schema {schema!r}, this release reads {SCHEMA}: use the release that wrote it"
            )
        claimed = body.pop("sha256")
        if not claimed or digest(body) != claimed:
            raise CheckpointDamaged(f"checkpoint {key} is damaged: its content does not have its digest")
        record = Checkpoint.model_validate({**body, "sha256": claimed, "size": len(data)})
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise CheckpointDamaged(f"checkpoint {key} cannot be read: {type(error).__name__}") from None
    if (record.thread, record.branch, record.sequence) != (thread, branch, sequence):
        raise CheckpointDamaged(f"checkpoint {key} says that it is {record.thread}/{record.branch}/{record.sequence}")
    return record


def parent_head(record: Checkpoint) -> Head | None:
    """The checkpoint before this one; None for the opening. Raises CheckpointDamaged for a malformed link."""
    if record.parent is None:
        if record.sequence != 0:
            raise CheckpointDamaged(f"checkpoint {record.sequence} of {record.thread} has no parent: there is a gap")
        return None
    match = re.search(r"/checkpoints/([^/]+)/(\d+)\.json$", record.parent.get("key", ""))
    if match is None or int(match[2]) != record.sequence - 1:
        raise CheckpointDamaged(f"checkpoint {record.sequence} of {record.thread} names a parent that is not before it")
    return Head(branch=match[1], sequence=int(match[2]), sha256=record.parent.get("sha256", ""))


def same_request(found: Checkpoint, request_digest: str) -> None:
    """Raises CheckpointConflict unless the record answers that very request."""
    if found.inputs.request_digest != request_digest:
        key = checkpoint_key(found.thread, found.branch, found.sequence)
        raise CheckpointConflict(
            f"checkpoint {key} belongs to another request; neither is taken. Fork from an earlier one"
        )
