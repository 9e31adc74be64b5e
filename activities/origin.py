"""What a fork keeps of where it came from: two small records in its own folder, so that the source may be deleted.

`fork.json` names the checkpoint, pinned before anything is copied: every attempt copies the same path. `past.json`
holds the effects of the source as they stood then: those that the fork's context holds, and those that it does not.
"""

import json
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.canonical import digest
from activities.errors import CheckpointDamaged
from activities.store import Store
from workflows.keys import folder
from workflows.records import EffectRecord, Head

SCHEMA = 1


class PutOnce(BaseModel):
    """A record with a digest of its own, put once."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = Field(SCHEMA, alias="schema")

    async def put(self, store: Store, key: str) -> Self:
        """Puts it, and gives what stands there: this one, or what an earlier attempt has put."""
        body = self.model_dump(mode="json", by_alias=True)
        await store.put_new(key, json.dumps({**body, "sha256": digest(body)}, ensure_ascii=False).encode("utf-8"))
        found = await self.find(store, key)
        if found is None:
            raise CheckpointDamaged(f"{key} was there and is gone")
        return found

    @classmethod
    async def find(cls, store: Store, key: str) -> Self | None:
        """Reads it. Raises CheckpointDamaged."""
        data = await store.get(key)
        if data is None:
            return None
        try:
            body = json.loads(data)
            claimed = body.pop("sha256")
            if digest(body) != claimed:
                raise CheckpointDamaged(f"{key} is damaged: its content does not have its digest")
            return cls.model_validate(body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as error:
            raise CheckpointDamaged(f"{key} cannot be read: {type(error).__name__}") from None


class Origin(PutOnce):
    """Where a fork begins. `ancestry`: the source's thread, then those that it was forked from itself."""

    workflow_id: str
    head: Head
    ancestry: list[str] = Field(min_length=1)
    at: str


class PastEffect(BaseModel):
    """An effect that was made before, elsewhere. `after`: the fork's context does not hold it. `call`: the call that it
    was made for."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    thread: str
    request_digest: str
    after: bool
    record: EffectRecord
    call: str | None = None


class Past(PutOnce):
    """The effects of a fork's source, those that the source had from its own source among them."""

    effects: list[PastEffect] = Field(default_factory=list)


def origin_key(thread: str) -> str:
    """Where a fork says what it was forked from."""
    return f"{folder(thread)}/fork.json"


def past_key(thread: str) -> str:
    """Where a fork keeps the effects of its source."""
    return f"{folder(thread)}/past.json"


async def find_origin(store: Store, thread: str) -> Origin | None:
    """What a thread was forked from; None for one that was not."""
    return await Origin.find(store, origin_key(thread))


async def find_past(store: Store, thread: str) -> list[PastEffect]:
    """The effects that a fork knows of its source; none for a thread that is no fork. Raises CheckpointDamaged for a
    fork without its record: what it did before would be made again in silence."""
    found = await Past.find(store, past_key(thread))
    if found is None and await find_origin(store, thread) is not None:
        raise CheckpointDamaged(
            f"{past_key(thread)} is not there: the fork is not made yet, or its folder is damaged; if so, restore it "
            "from a backup of the store, or fork its source anew"
        )
    return found.effects if found else []
