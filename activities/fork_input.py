"""What a run may be forked with: the field `fork` of its input, and the checkpoint that it names."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from temporalio.common import RawValue

from activities.checkpoints import Checkpoint, now_iso
from activities.origin import Origin, find_origin, origin_key
from activities.sources import Sources
from activities.world import World
from workflows.edits import Edits
from workflows.messages import decode_json, loads
from workflows.records import BundleRef


class ForkInput(BaseModel):
    """`branch`: the path on which the checkpoint stands, where it is not the one that was written to last. `budget`:
    whether what the prefix has used counts."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    workflow_id: Annotated[str, StringConstraints(min_length=1, max_length=1200)]
    checkpoint: Annotated[int, Field(ge=0, le=10**9)]
    branch: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None = None
    budget: Literal["fresh", "inherited"] = "fresh"
    edits: Edits = []


def fork_of(payload: RawValue) -> ForkInput:
    """The field of an input that was read before, with a new goal as the last of its edits."""
    value: Any = decode_json(payload)
    if isinstance(value, str):
        value = loads(value)
    return wanted_of(value)


def wanted_of(value: dict[str, Any]) -> ForkInput:
    """The same of an input's object. Raises ValidationError."""
    wanted = ForkInput.model_validate(value["fork"])
    if value.get("goal") is not None:
        goal = ForkInput.model_validate({**value["fork"], "edits": [{"goal": value["goal"]}]}).edits
        wanted = wanted.model_copy(update={"edits": [*wanted.edits, *goal]})
    return wanted


@dataclass(frozen=True)
class Beginnings:
    """What an opening takes from the checkpoint that is forked: nothing, for a run that begins anew."""

    record: Checkpoint | None = None
    bundle: BundleRef | None = None
    ancestry: list[str] = field(default_factory=list)


Nothing = Beginnings()


async def pinned(world: World, thread: str, wanted: ForkInput) -> Beginnings:
    """Finds the checkpoint, and puts on record which one it is: all attempts fork the same. Raises InvalidInput."""
    sources = Sources(world.store, world.checkpoints, world.segments)
    origin = await find_origin(world.store, thread)
    if origin is None:
        point = await sources.point(wanted.workflow_id, wanted.checkpoint, wanted.branch)
        before = await find_origin(world.store, point.thread)
        origin = await Origin(
            workflow_id=wanted.workflow_id,
            head=point.record.head(),
            ancestry=[point.thread, *(before.ancestry if before else [])],
            at=now_iso(),
        ).put(world.store, origin_key(thread))
    record = (await sources.point(origin.ancestry[0], origin.head.sequence, origin.head.branch)).record
    name, _, version = record.versions["bundle"].rpartition("@")
    bundle = BundleRef(name=name, version=version, digest=record.versions["bundle_digest"])
    return Beginnings(record, bundle, origin.ancestry)
