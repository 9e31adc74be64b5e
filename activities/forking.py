"""The activity `run.fork`: the prefix is copied, edited and decided on anew, and nothing of it is run again.

The copies are the source's own records, byte for byte, so a fork shares its prefix by digest. They stand in the fork's
own folder, so that either run can be deleted.
"""

from typing import Any

from temporalio import activity
from temporalio.common import RawValue

from activities.canonical import preview
from activities.context import Messages
from activities.copying import copy_objects
from activities.edits import Spliced
from activities.errors import CheckpointDamaged, InvalidInput, WorkspaceUnavailable
from activities.fork_input import ForkInput, fork_of
from activities.fork_start import Start, load_start
from activities.heartbeats import heartbeats
from activities.judge import Bench
from activities.opening import depth_left
from activities.origin import Past, find_origin, past_key
from activities.past import past_effects
from activities.prefix import Prefix
from activities.reply import RawCall
from activities.sessions import begin
from activities.sources import Sources, damaged
from activities.world import World
from workflows.catalog import FORK
from workflows.edits import Goal
from workflows.fork_records import Forked, ForkPoint, ForkRequest
from workflows.records import Call, Files, Item, Turn, TurnRequest, Usage

MAY_RUN = "the run that this one was forked from decided on this very call too, and may run it or may have"


class ForkActivities:
    """Makes forks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sources = Sources(world.store, world.checkpoints, world.segments)

    @activity.defn(name=FORK.name)
    async def fork(self, request: ForkRequest, payload: RawValue) -> Forked:
        """What the fork begins with. Raises InvalidInput for edits that cannot be, and for a source that is gone or
        damaged."""
        async with heartbeats():
            origin = await find_origin(self._world.store, request.thread)
            if origin is None:
                raise CheckpointDamaged(f"the record of what {request.thread} was forked from is gone")
            wanted, source = fork_of(payload), origin.ancestry[0]
            try:
                start = await self._start(wanted, source, request)
                files = await self._copy(start, request.thread)
                items, answers = await self._stored(request.thread, start)
                spliced = start.edited(answers, wanted.edits)
                known = start.known(spliced)
                past = Past(effects=await past_effects(self._world.store, self._world.ledger, source, known))
            except (CheckpointDamaged, WorkspaceUnavailable) as error:
                raise damaged(wanted.workflow_id, origin.head.sequence, error) from None
            effects = (await past.put(self._world.store, past_key(request.thread))).effects
            point = ForkPoint(
                workflow_id=origin.workflow_id,
                thread=source,
                checkpoint=origin.head.sequence,
                sha256=origin.head.sha256,
            )
            after = sum(effect.after for effect in effects)
            return Forked(
                point=point,
                goal=_goal(wanted, start),
                files=files,
                session=start.breaks.session,
                inherited=len(effects) - after,
                after=after,
                **await self._begin(request, start, items, spliced),
                **(_spent(start) if wanted.budget == "inherited" else {}),
            )

    async def _start(self, wanted: ForkInput, source: str, request: ForkRequest) -> Start:
        number = request.head.sequence
        point = await self._sources.point(source, number, wanted.branch)
        if point.record.head() != request.head:  # the source has gone on in another way since it was pinned
            point = await self._sources.point(source, number, request.head.branch)
        if point.record.head() != request.head:
            raise InvalidInput(f"fork: checkpoint {number} of {source} is not the one that was there before")
        return await load_start(self._world, activity.client(), wanted.workflow_id, point)

    async def _copy(self, start: Start, thread: str) -> Files:
        """Copies the prefix, its bodies, files and answers. Gives the state of the workspace."""
        prefix = Prefix(self._world, start.point.thread, start.records)
        refs = [item.ref.sha256 for item in start.settled.values() if item.ref is not None]
        files = await prefix.files(refs)
        missing = await copy_objects(self._world.store, await prefix.pairs(thread, refs, files))
        if missing:
            raise InvalidInput(f"fork: {missing[0]} is gone from the store: is the source being deleted?")
        self._world.contexts.adopt(thread, start.point.record, start.before)
        return files

    async def _begin(
        self, request: ForkRequest, start: Start, items: dict[str, Item], spliced: Spliced | None
    ) -> dict[str, Any]:
        """The turn with its calls decided on anew, or an edited context."""
        turn = start.turn
        if spliced is None:
            before = start.before[: -1 if start.point.record.outputs.message else None]
            return {
                "turn": None if turn is None else await self._judged(request, turn, before, set(items)),
                "answers": list(items.values()),
            }
        if spliced.open and turn is not None:
            answers = await self._given(request.thread, spliced)
            settled = {str(each.call) for each in answers}
            return {
                "base": await begin(self._world.entries, request.thread, spliced.messages),
                "turn": await self._judged(request, turn, spliced.messages[:-1], settled),
                "answers": answers,
                "said": [Item(text=each["text"], by=each.get("by")) for each in spliced.said],
            }
        base = await begin(self._world.entries, request.thread, spliced.whole)
        return {"base": base, "turn": turn if spliced.whole[-1]["role"] == "assistant" else None}

    async def _given(self, thread: str, spliced: Spliced) -> list[Item]:
        refs = [await self._world.entries.put(thread, each, str(each["text"])) for each in spliced.answers]
        pairs = zip(spliced.answers, refs, strict=True)
        return [Item(ref=ref, call=each["call"], tool=each["tool"]) for each, ref in pairs]

    async def _stored(self, thread: str, start: Start) -> tuple[dict[str, Item], Messages]:
        """The settled answers in call order, all of them as entries of the fork, and what they say."""
        items = list(start.settled.values())
        refs, answers = await self._world.contexts.store_items(thread, items)
        pairs = zip(items, refs, strict=True)
        return {str(item.call): Item(ref=ref, call=item.call, tool=item.tool) for item, ref in pairs}, answers

    async def _judged(self, request: ForkRequest, turn: Turn, before: Messages, settled: set[str]) -> Turn:
        """The turn with every call that is not settled decided on by this run's bundle, under names of this run."""
        manifest = await self._world.bundles.manifest(request.bundle.digest)
        asked = TurnRequest(
            thread=request.thread,
            branch=request.branch,
            turn=request.head.sequence,
            head=request.head,
            new=[],
            bundle=request.bundle.digest,
            repeat=request.repeat,
            ancestry=request.ancestry,
            depth_left=depth_left(manifest, None),  # a fork is nobody's sub-agent
        )
        world = self._world
        bench = Bench(asked, manifest, world.registry, world.entries, world.ledger, world.ancestry, before)
        bench.doubt = MAY_RUN if request.repeat != "run" else ""
        record = await world.checkpoints.load(request.thread, request.head)
        made = (record.outputs.message or {}).get("calls", [])
        raw = [RawCall(call["provider_id"], call["tool"], call["arguments"]) for call in made]
        judged = {each.call.id: each.call for each in await bench.judge(raw, settled)}
        calls = [
            judged.get(call.id) or Call(id=call.id, tool=call.tool, decision="answered", answer=call.answer)
            for call in turn.calls
        ]
        return turn.model_copy(update={"calls": calls, "abandoned": None, "files": None})


def _goal(wanted: ForkInput, start: Start) -> str:
    goals = [edit.goal for edit in wanted.edits if isinstance(edit, Goal)]
    return preview(goals[-1] if goals else str(start.before[0]["text"]))


def _spent(start: Start) -> dict[str, Any]:
    """What the prefix has used of a budget."""
    usage, calls = Usage(), 0
    for record in start.records:
        usage = usage.plus(record.usage)
        calls += sum(call.get("decision") != "answered" for call in (record.outputs.turn or {}).get("calls", []))
    return {"usage": usage, "turns": len(start.records) - 1, "tool_calls": calls}
