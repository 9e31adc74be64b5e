"""The activity `model.spent`: what a turn or a handoff cost that the run ends without."""

from temporalio import activity

from activities.trail import Trail
from activities.world import World
from workflows.catalog import SPENT
from workflows.records import Usage
from workflows.side_records import SpentRequest


class SpentActivities:
    """Looks costs up."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=SPENT.name)
    async def spent(self, request: SpentRequest) -> Usage:
        """The usage of its failed requests and, where a turn was published that the run has not heard of, of all.
        Raises StoreUnavailable and CheckpointDamaged."""
        if request.turn is not None:
            found = await self._world.checkpoints.find(request.thread, request.branch, request.turn)
            if found is not None:
                return found.usage
        return (await Trail.of(self._world.store, request)).usage
