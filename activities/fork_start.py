"""What stands at a checkpoint that is forked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from temporalio.client import Client

from activities.checkpoints import Checkpoint
from activities.context import Messages, user_message
from activities.edits import ENDS, EditError, Spliced, forgotten, splice
from activities.errors import CheckpointDamaged, InvalidInput
from activities.past import Known
from activities.sessions import session_of
from activities.settled import settled_items
from activities.sources import Point, Sources, damaged, workflow_of
from activities.turn import recorded_turn
from activities.world import World
from workflows.edits import Edit
from workflows.records import Item, Turn

EDITOR = "an edit"
"""Who says what the edits of a fork add, where nobody is named."""


@dataclass(frozen=True)
class Breaks:
    """Where the context of a path began anew. `session`: the one that its end stands in; `left`: the calls that edits
    took out or answered in other words; `untold`: the turns whose answers a handoff summed up before a checkpoint had
    named them."""

    session: int = 1
    left: set[str] = field(default_factory=set)
    untold: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Start:
    """The records of the path, oldest first; the messages up to and with the last turn's; that turn, and the answers
    of its calls that are settled, by call id in call order."""

    point: Point
    records: list[Checkpoint]
    before: Messages
    turn: Turn | None
    settled: dict[str, Item]
    breaks: Breaks = Breaks()

    def known(self, spliced: Spliced | None) -> Known:
        """What the context holds of the effects on its path, after its edits."""
        settled = {call: item.ref.sha256 if item.ref else None for call, item in self.settled.items()}
        left = self.breaks.left | set(spliced.left if spliced else ())
        return Known(self.records, settled, left, self.breaks.untold)

    def said(self, answers: Messages) -> Messages:
        """The messages that edits refer to; `answers` are those that are settled."""
        nudge = [user_message(self.turn.nudge)] if self.turn and self.turn.nudge else []
        return [*self.before, *answers, *nudge]

    def edited(self, answers: Messages, edits: Sequence[Edit], by: str = EDITOR) -> Spliced | None:
        """The context after edits (of `by`), None without any. Raises InvalidInput for those that cannot be."""
        if not edits:
            return None
        try:
            spliced = splice(self.said(answers), edits, self.open(), by)
        except EditError as error:
            raise InvalidInput(f"fork: {error}") from None
        if spliced.open and self.turn is not None:
            return spliced
        changed = self.turn is None or self.turn.calls or not spliced.kept
        if spliced.whole[-1]["role"] == "assistant" and changed:
            raise InvalidInput(f"fork: {ENDS}")
        return spliced

    def open(self) -> list[str]:
        """The calls that are not settled."""
        return [call.id for call in self.turn.calls if call.id not in self.settled] if self.turn else []


async def load_start(world: World, client: Client, workflow_id: str, point: Point) -> Start:
    """Reads and checks all of the path. Raises InvalidInput where it is damaged."""
    head, thread = point.record.head(), point.thread
    records = await Sources(world.store, world.checkpoints, world.segments).whole(workflow_id, thread, head)
    try:
        before = await world.contexts.messages(records)
        turn = recorded_turn(point.record) if point.record.outputs.turn is not None else None
        calls = turn.calls if turn else []
        asked = workflow_of(workflow_id, thread)
        found = await settled_items(world, client, asked, point, [call.id for call in calls])
    except CheckpointDamaged as error:
        raise damaged(workflow_id, head.sequence, error) from None
    for call in calls:
        if call.answer is not None:
            found.setdefault(call.id, Item(ref=call.answer, call=call.id, tool=call.tool))
    settled = {call.id: found[call.id] for call in calls if call.id in found}
    return Start(point, records, before, turn, settled, await _breaks(world, records))


async def _breaks(world: World, records: Sequence[Checkpoint]) -> Breaks:
    session, left, untold = 1, set[str](), list[int]()
    for index, record in enumerate(records):
        if not record.base or index == 0:
            continue
        new = await world.entries.messages(record.place, record.inputs.entries)
        if (number := session_of(new)) > session:
            session = number
            untold.append(record.sequence - 1)
        else:
            left |= forgotten(await world.contexts.messages(records[:index]), new)
    return Breaks(session, left, untold)
