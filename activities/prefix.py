"""All objects of a thread that belong to one path up to a checkpoint."""

from collections.abc import Sequence

from activities.checkpoints import Checkpoint
from activities.errors import CheckpointDamaged, WorkspaceUnavailable
from activities.listing import Kept
from activities.segments import is_due
from activities.world import World
from workflows.keys import checkpoint_key, entry_key, file_key, folder, segment_key
from workflows.records import Files


class Prefix:
    """The path of `records`, from the opening on, in `thread`."""

    def __init__(self, world: World, thread: str, records: Sequence[Checkpoint]) -> None:
        self._world, self._thread, self._records = world, thread, records

    async def files(self, answers: Sequence[str]) -> Files:
        """The workspace after the last checkpoint: as it was before that turn, and what its settled calls changed."""
        files = self._records[-1].inputs.files
        for body in await self._world.entries.get_all(self._thread, answers):
            if (change := body.get("files")) is not None:
                files = files.plus(str(change))
        return files

    async def pairs(self, target: str, answers: Sequence[str], files: Files) -> list[tuple[str, str]]:
        """Each key with the one that it gets in another thread. Bodies come first, records last: what is there is
        whole."""
        keys = await self._bodies(answers, files)
        last = self._records[-1]
        named = [record.segment for record in self._records if record.segment is not None]
        keys += [segment_key(self._thread, each.branch, each.sequence) for each in named]
        own = segment_key(self._thread, last.branch, last.sequence)
        if is_due(last) and await self._world.store.get(own) is not None:
            keys.append(own)
        keys += [checkpoint_key(self._thread, record.branch, record.sequence) for record in self._records]
        before, after = folder(self._thread), folder(target)
        return [(key, after + key.removeprefix(before)) for key in dict.fromkeys(keys)]

    async def _bodies(self, answers: Sequence[str], files: Files) -> list[str]:
        states = [*(record.inputs.files for record in self._records), files]
        listings = dict.fromkeys(digest for state in states for digest in (state.base, *state.changes) if digest)
        contents = dict[str, None]()
        for digest in listings:
            contents |= dict.fromkeys(
                file_key(self._thread, kept.sha256) for kept in await self._kept(digest) if kept.sha256
            )
        digests = dict.fromkeys(digest for record in self._records for digest in record.inputs.entries)
        entries = [entry_key(self._thread, digest) for digest in (*digests, *answers, *listings)]
        return [*contents, *entries, *await self._handoffs()]

    async def _kept(self, digest: str) -> list[Kept]:
        """What a listing or a change names."""
        try:
            body = await self._world.entries.get(self._thread, digest)
        except CheckpointDamaged as error:
            raise WorkspaceUnavailable(error.message) from None
        return [Kept.model_validate(each) for name in ("files", "changed") for each in body.get(name, {}).values()]

    async def _handoffs(self) -> list[str]:
        """What was handed over on the branches of this path."""
        top, last = f"{folder(self._thread)}/handoffs", self._records[-1].sequence
        branches = {record.branch for record in self._records if record.sequence < last}
        keys = await self._world.store.keys(top)
        return [key for key in keys if key.removeprefix(f"{top}/").partition("/")[0] in branches]
