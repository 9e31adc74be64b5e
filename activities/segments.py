"""Segments: runs of checkpoints packed with their bodies, so that a cold worker reads n/32 objects and not 2n.

A segment ends with every 32nd checkpoint, or earlier when the bodies since the last one pass a limit: the rule is a
function of the records alone, so every worker makes the same segments. It is written once its last checkpoint is
published; the next record names it with its digest. Nothing is lost without it: who goes on and finds a due one missing
writes it, from the records.

The digest is that of the content before compression, which may differ between versions of the compressor.
"""

import asyncio
import zlib
from itertools import pairwise

from pydantic import BaseModel, ValidationError

from activities.canonical import sha256
from activities.checkpoints import Checkpoint, Checkpoints, parent_head
from activities.entries import Entries
from activities.errors import CheckpointDamaged
from activities.store import Store
from workflows.keys import segment_key
from workflows.records import Head

EVERY = 32
"""Checkpoints in a segment."""

TAIL_BYTES = 2_000_000
"""Bodies after which a segment ends before that."""

PACKED_BYTES = 65_536
"""Larger bodies stay where they are: they are read one by one, and not kept twice."""

LEVEL = 6
REMEMBERED = 1000
SCHEMA = 1


class Packed(BaseModel):
    """What a segment holds: records as they were written, and bodies by their digests."""

    schema_version: int
    thread: str
    records: list[str]
    entries: dict[str, str]


class Segments:
    """The segments of all threads, over one store."""

    def __init__(self, store: Store, checkpoints: Checkpoints, entries: Entries) -> None:
        self._store, self._checkpoints, self._entries = store, checkpoints, entries
        self._known: dict[str, tuple[Head, Head]] = {}

    async def after(self, record: Checkpoint) -> Head | None:
        """The newest segment up to and with `record`, written now if it is due and missing. Its digest is the
        segment's."""
        if not is_due(record):
            return record.segment
        known = self._known.get(record.place)
        if known is not None and known[0] == record.head():
            return known[1]
        found = await self._find(record)
        segment = found[0] if found else await self._write(record)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[record.place] = (record.head(), segment)
        return segment

    async def history(self, thread: str, head: Head, *, whole: bool = False) -> list[Checkpoint]:
        """The records of the context: from the last base, or the opening, to `head`, oldest first, each link checked;
        of the `whole` run where that is wanted.

        The bodies that segments hold go into the entries' cache on the way.
        """
        newest = await self._checkpoints.load(thread, head)
        found, segment = [newest], newest.segment
        if is_due(newest) and (own := await self._find(newest)) is not None:
            found, segment = own[1], own[1][0].segment
        elif whole or not newest.base:
            after = segment.sequence if segment else -1
            before = parent_head(newest)
            found = [*(await self._checkpoints.chain(thread, before, after) if before else []), newest]
        while segment is not None and (whole or not any(record.base for record in found)):
            records = await self._read(thread, segment)
            _join(records[-1], found[0])
            found, segment = [*records, *found], records[0].segment
        bases = [index for index, record in enumerate(found) if record.base and not whole]
        if not bases and found[0].parent is not None:
            raise CheckpointDamaged(f"the chain of {thread} begins with checkpoint {found[0].sequence}: there is a gap")
        return found[bases[-1] if bases else 0 :]

    async def _write(self, last: Checkpoint) -> Head:
        after = last.segment.sequence if last.segment else -1
        records = await self._checkpoints.chain(last.place, last.head(), after)
        digests = list(dict.fromkeys(digest for record in records for digest in record.inputs.entries))
        bodies = await asyncio.gather(*(self._entries.get_bytes(last.place, digest) for digest in digests))
        packed = Packed(
            schema_version=SCHEMA,
            thread=last.place,
            records=[record.raw.decode("utf-8") for record in records],
            entries={
                digest: body.decode("utf-8")
                for digest, body in zip(digests, bodies, strict=True)
                if len(body) <= PACKED_BYTES
            },
        )
        data = packed.model_dump_json().encode("utf-8")
        key = segment_key(last.place, last.branch, last.sequence)
        if not await self._store.put_new(key, zlib.compress(data, LEVEL)):
            held = await self._find(last)  # whose bodies another release may have chosen differently
            if held is None:
                raise CheckpointDamaged(f"segment {key} was there and is gone")
            return held[0]
        return Head(branch=last.branch, sequence=last.sequence, sha256=sha256(data))

    async def _find(self, last: Checkpoint) -> tuple[Head, list[Checkpoint]] | None:
        """The segment that ends with this record, and what it holds, if it is there. No record names it yet, so all of
        it is checked."""
        key = segment_key(last.place, last.branch, last.sequence)
        data = await self._store.get(key)
        if data is None:
            return None
        content = _unpack(data, key)
        records = self._records(content, key, last.place, vouched=False)
        if records[-1].head() != last.head():
            raise CheckpointDamaged(f"segment {key} does not end with its checkpoint: delete it")
        return Head(branch=last.branch, sequence=last.sequence, sha256=sha256(content)), records

    async def _read(self, thread: str, segment: Head) -> list[Checkpoint]:
        key = segment_key(thread, segment.branch, segment.sequence)
        data = await self._store.get(key)
        if data is None:
            raise CheckpointDamaged(f"segment {key} is missing from the store")
        content = _unpack(data, key)
        if not segment.sha256 or sha256(content) != segment.sha256:
            raise CheckpointDamaged(f"segment {key} is altered: its digest is not the one that the chain names")
        records = self._records(content, key, thread, vouched=True)
        if (records[-1].branch, records[-1].sequence) != (segment.branch, segment.sequence):
            raise CheckpointDamaged(f"segment {key} ends with checkpoint {records[-1].sequence}, not with its own")
        return records

    def _records(self, content: bytes, key: str, thread: str, *, vouched: bool) -> list[Checkpoint]:
        try:
            packed = Packed.model_validate_json(content)
        except ValidationError as error:
            raise CheckpointDamaged(f"segment {key} cannot be read: {type(error).__name__}") from None
        if packed.schema_version != SCHEMA:
            raise CheckpointDamaged(f"segment {key} has schema {packed.schema_version}, this release reads {SCHEMA}")
        decode = self._checkpoints.decode
        records = [decode(text.encode("utf-8"), key, thread, vouched=vouched) for text in packed.records]
        if not records or packed.thread not in {thread, *(record.thread for record in records)}:
            raise CheckpointDamaged(f"segment {key} is of thread {packed.thread}")
        for before, record in pairwise(records):
            _join(before, record)
        if not vouched and any(sha256(text.encode("utf-8")) != digest for digest, text in packed.entries.items()):
            raise CheckpointDamaged(f"segment {key} holds a body with another digest: delete it")
        self._entries.warm(thread, packed.entries)
        return records


def is_due(record: Checkpoint) -> bool:
    """Whether a segment ends with this record."""
    after = record.segment.sequence if record.segment else -1
    return record.sequence - after >= EVERY or record.tail >= TAIL_BYTES


def _join(before: Checkpoint, after: Checkpoint) -> None:
    """Raises CheckpointDamaged unless `before` is what `after` comes after."""
    if before.head() != parent_head(after):
        raise CheckpointDamaged(f"checkpoint {before.key()} in its segment is not the one that the next record names")


def _unpack(data: bytes, key: str) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise CheckpointDamaged(f"segment {key} is damaged: {error}") from None
