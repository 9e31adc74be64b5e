"""The activity `run.edit`: the context of a paused run with other words, checked, as the list that it goes on from."""

from temporalio import activity

from activities.ancestry import NOTHING_HAPPENED, brief
from activities.canonical import preview
from activities.context import Messages
from activities.edits import ENDS, EditError, Spliced, edits_of, splice
from activities.errors import CheckpointDamaged
from activities.heartbeats import heartbeats
from activities.origin import find_past
from activities.sessions import begin, beginning
from activities.world import World
from workflows.catalog import EDIT
from workflows.edits import Goal
from workflows.fork_records import Edited, EditRequest
from workflows.records import EffectRecord, Item


class EditActivities:
    """Edits contexts. Nothing that is on record changes."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=EDIT.name)
    async def edit(self, request: EditRequest) -> Edited:
        """The list of entries that the run goes on from; `refused` for edits that cannot be."""
        async with heartbeats():
            edits = edits_of(request.edits)
            try:
                spliced = splice(await self._context(request), edits, request.unsettled, request.by)
            except EditError as error:
                return Edited(refused=str(error))
            except CheckpointDamaged as error:
                return Edited(refused=error.message)
            if (fault := _fault(request, spliced)) is not None:
                return Edited(refused=fault)
            whole = spliced.messages if request.turn else [*spliced.messages, *spliced.said]
            goals = [preview(edit.goal) for edit in edits if isinstance(edit, Goal)]
            return Edited(
                base=await begin(self._world.entries, request.thread, whole),
                new=await self._items(request.thread, spliced.answers),
                said=[Item(text=each["text"], by=request.by) for each in spliced.said] if request.turn else [],
                operations=await self._left(request.thread, spliced.left),
                goal=goals[-1] if goals else None,
            )

    async def _context(self, request: EditRequest) -> Messages:
        world, thread = self._world, request.thread
        _, new = await world.contexts.store_items(thread, request.new)
        if request.base is not None:
            return [*(await beginning(world.entries, thread, request.base)).messages, *new]
        return [*await world.contexts.load(thread, request.head), *new]

    async def _items(self, thread: str, answers: Messages) -> list[Item]:
        refs = [await self._world.entries.put(thread, each, str(each["text"])) for each in answers]
        pairs = zip(answers, refs, strict=True)
        return [Item(ref=ref, call=each["call"], tool=each["tool"]) for each, ref in pairs]

    async def _left(self, thread: str, calls: list[str]) -> list[EffectRecord]:
        """The effects of calls that the context does not hold any more, those of a fork's source among them."""
        if not calls:
            return []
        past = [each for each in await find_past(self._world.store, thread) if each.call in calls and not each.after]
        found = [brief(each.record) for each in past]
        for name in await self._world.ledger.names(thread):
            operation = f"{thread}:{name}"
            held = await self._world.ledger.prepared(thread, operation)
            if held is not None and held.call in calls and held.undoes is None:
                view = await self._world.ledger.view(thread, operation)
                if view is not None and view.status not in NOTHING_HAPPENED:
                    found.append(brief(view))
        return found


def _fault(request: EditRequest, spliced: Spliced) -> str | None:
    """Why a run that stands there cannot go on from it."""
    if request.unsettled and not spliced.split:
        names = ", ".join(request.unsettled)
        return (
            f"the last message of the agent makes calls that are not settled ({names}), so it cannot be dropped: "
            f"decide them first, or fork from checkpoint {request.head.sequence - 1}"
        )
    last = [*spliced.messages, *spliced.said][-1]
    return ENDS if not request.turn and last["role"] == "assistant" else None
