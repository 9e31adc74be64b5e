"""A workspace that goes from one run to the next: the same files, as the next one's own."""

from activities.copying import copy_objects
from activities.errors import WorkspaceUnavailable
from activities.listing import Base
from activities.world import World
from workflows.keys import file_key
from workflows.records import Files, Workspace


async def hand_over(world: World, source: Workspace, thread: str) -> Files:
    """Copies what `source` names into the folder of `thread`, so that either run can be deleted. Gives the state there.

    Raises WorkspaceUnavailable where the source lacks something.
    """
    if source.files == Files():
        return Files()
    listing = await world.workspaces.listing(source.thread, source.files)
    contents = dict.fromkeys(kept.sha256 for kept in listing.values() if kept.sha256)
    pairs = [(file_key(source.thread, each), file_key(thread, each)) for each in contents]
    if source.thread != thread and (missing := await copy_objects(world.store, pairs)):
        raise WorkspaceUnavailable(f"{missing[0]} is missing from the store")
    base = Base(files=listing).model_dump(mode="json", exclude_defaults=True)
    return Files(base=(await world.entries.put(thread, base, "")).sha256)
