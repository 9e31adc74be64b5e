"""What stands at a checkpoint that is forked."""

from dataclasses import dataclass

from temporalio.client import Client

from activities.checkpoints import Checkpoint
from activities.context import Messages
from activities.errors import CheckpointDamaged
from activities.past import operations
from activities.settled import settled_items
from activities.sources import Point, Sources, damaged
from activities.turn import recorded_turn
from activities.world import World
from workflows.records import Item, Turn


@dataclass(frozen=True)
class Start:
    """The records of the path, oldest first; the messages up to and with the last turn's; that turn, and the answers
    of its calls that are settled, by call id in call order."""

    point: Point
    records: list[Checkpoint]
    before: Messages
    turn: Turn | None
    settled: dict[str, Item]

    def held(self) -> set[str]:
        """The operations whose outcome the context holds."""
        return operations(self.records, list(self.settled))

    def open(self) -> list[str]:
        """The calls that are not settled."""
        return [call.id for call in self.turn.calls if call.id not in self.settled] if self.turn else []


async def load_start(world: World, client: Client, workflow_id: str, point: Point) -> Start:
    """Reads and checks all of the path. Raises InvalidInput where it is damaged."""
    head, thread = point.record.head(), point.thread
    records = await Sources(world.store, world.checkpoints, world.segments).whole(workflow_id, thread, head)
    try:
        before = await world.contexts.messages(records)
    except CheckpointDamaged as error:
        raise damaged(workflow_id, head.sequence, error) from None
    turn = recorded_turn(point.record) if point.record.outputs.turn is not None else None
    calls = turn.calls if turn else []
    found = await settled_items(world, client, workflow_id, point, [call.id for call in calls])
    for call in calls:
        if call.answer is not None:
            found.setdefault(call.id, Item(ref=call.answer, call=call.id, tool=call.tool))
    return Start(point, records, before, turn, {call.id: found[call.id] for call in calls if call.id in found})
