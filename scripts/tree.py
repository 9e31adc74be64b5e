"""A run as a tree: sessions, turns, calls with what was decided and done, and the paths that were left."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.ancestry import NOTHING_HAPPENED
from activities.canonical import preview
from activities.checkpoints import Checkpoint, Checkpoints
from activities.errors import CheckpointDamaged
from activities.ledger import Ledger
from activities.origin import Origin, find_origin, find_past
from activities.sessions import session_of
from activities.store import Store
from scripts.past import Step, path_to
from scripts.records import newest
from workflows.records import Call, EffectRecord

Decision = dict[str, Any]
"""A line of the run's log, as the query `decisions` gives it."""

NOTHING: dict[str, Decision] = {}
_REFUSALS = ("denied this call.", "Nobody approved this call before its deadline")


@dataclass(frozen=True)
class CallNode:
    """A call: what was decided on it, what it did, and what it was answered (None: not yet)."""

    id: str
    tool: str
    arguments: Any
    decision: str
    answer: str | None
    effect: dict[str, Any] | None = None


@dataclass(frozen=True)
class TurnNode:
    """A turn, and what was said to the model before it. `said`: who and what."""

    turn: int
    at: str
    kind: str
    text: str
    said: list[tuple[str, str]]
    calls: list[CallNode]
    tokens: list[int]
    cost_usd: float
    model: str


@dataclass(frozen=True)
class Left:
    """A path that the run went, and left: its turns after checkpoint `at`, and what they did to the world and the path
    that is alive does not hold."""

    branch: str
    at: int
    turns: list[TurnNode]
    effects: list[dict[str, Any]]


@dataclass
class Tree:
    """The run. `sessions` are those of the path that is alive; `forked_from`: RUN@k; `other`: operations that belong to
    no call shown."""

    thread: str
    goal: str
    bundle: str
    sessions: list[list[TurnNode]]
    forked_from: str | None = None
    left: list[Left] = field(default_factory=list)
    other: list[EffectRecord] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def turns(self) -> list[TurnNode]:
        """Those of the path that is alive."""
        return [turn for session in self.sessions for turn in session]


async def tree_of(
    store: Store, thread: str, head: tuple[str, int] | None = None, decisions: Sequence[Decision] = ()
) -> Tree:
    """The tree of a thread. `head`: branch and number where the run stands, if it says so itself; else the record that
    was written last. `decisions`: the run's own log, which alone knows what was decided since. Raises Refused for a
    thread without a checkpoint, CheckpointDamaged for a path that is broken."""
    checkpoints, faults = Checkpoints(store), list[str]()
    last = await checkpoints.find(thread, *head) if head else None
    if last is None:
        last = await newest(store, thread)
    steps = await path_to(store, thread, last)
    own = await Ledger(store).everything(thread)
    origin = await find_origin(store, thread)
    effects = await effects_by_name(store, thread, own, steps, origin)
    decided = {each["operation_id"]: each for each in decisions if each.get("operation_id")}
    sessions: list[list[TurnNode]] = [[]]
    session = 1
    for step in steps:
        if (number := session_of(step.new)) > session:
            session = number
            sessions.append([])
        if step.number > 0:
            sessions[-1].append(turn_node(step, effects, decided))
    bundle = steps[-1].record.versions.get("bundle", "")
    source = f"{origin.workflow_id}@{origin.head.sequence}" if origin else None
    tree = Tree(thread, str(steps[0].new[0]["text"]), bundle, sessions, source, faults=faults)
    known = {(step.record.branch, step.number) for step in steps}
    held = {effect["operation_id"] for effect in effects_of(tree.turns)}
    for end in await _ends(checkpoints, thread, known, tree.faults):
        turns = await _left(store, thread, end, known, effects, tree.faults)
        if turns is not None:
            alone = [effect for effect in effects_of(turns) if effect["operation_id"] not in held]
            tree.left.append(Left(end.branch, max(0, turns[0].turn - 1) if turns else 0, turns, alone))
    shown = [call.effect["operation_id"] for turn in _all(tree) for call in turn.calls if call.effect]
    tree.other = [each for each in own if each.operation_id not in shown and not each.operation_id.endswith(":undo")]
    return tree


async def effects_by_name(
    store: Store, thread: str, own: Sequence[EffectRecord], steps: Sequence[Step], origin: Origin | None
) -> dict[str, EffectRecord]:
    """The effects by the operations that the records of a path name. The prefix of a fork names those of its source;
    where the fork decided on a call anew, it is the fork's own that is meant."""
    ledger, found = Ledger(store), {effect.operation_id: effect for effect in own}
    if origin is None:
        return found
    held = [await ledger.prepared(thread, effect.operation_id) for effect in own]
    anew = {each.call: found[each.operation_id] for each in held if each is not None and each.undoes is None}
    past = {each.record.operation_id: each.record for each in await find_past(store, thread)}
    for step in steps:
        named = [call for _, call in step.calls if call is not None and call.operation_id is not None]
        for call in named if step.record.thread != thread else []:
            name = str(call.operation_id)
            effect = anew.get(call.id) or await ledger.view(step.record.thread, name) or past.get(name)
            found |= {name: effect} if effect is not None else {}
    return found


def _all(tree: Tree) -> list[TurnNode]:
    return [*tree.turns, *(turn for left in tree.left for turn in left.turns)]


async def _ends(
    checkpoints: Checkpoints, thread: str, known: set[tuple[str, int]], faults: list[str]
) -> list[Checkpoint]:
    """The last record of each branch that has records beyond the path that is alive."""
    ends = dict[str, int]()
    for branch, number in await checkpoints.names(thread):
        if (branch, number) not in known:
            ends[branch] = max(number, ends.get(branch, 0))
    found = []
    for branch, number in ends.items():
        try:
            record = await checkpoints.find(thread, branch, number)
        except CheckpointDamaged as error:
            faults += [error.message] if error.message not in faults else []
            continue
        found += [record] if record is not None else []
    return sorted(found, key=lambda record: (-record.sequence, record.timestamp))


async def _left(
    store: Store,
    thread: str,
    end: Checkpoint,
    known: set[tuple[str, int]],
    effects: dict[str, EffectRecord],
    faults: list[str],
) -> list[TurnNode] | None:
    """The part of the path to `end` that no other path has; it is known from then on."""
    try:
        steps = await path_to(store, thread, end)
    except CheckpointDamaged as error:
        faults.append(error.message)
        return None
    own = [step for step in steps if (step.record.branch, step.number) not in known]
    known.update((step.record.branch, step.number) for step in own)
    return [turn_node(step, effects) for step in own if step.number > 0] if own else None


def turn_node(step: Step, effects: dict[str, EffectRecord], decided: Mapping[str, Decision] = NOTHING) -> TurnNode:
    """One turn. `decided`: the run's log of decisions, by operation."""
    usage, turn = step.record.usage, step.turn
    return TurnNode(
        turn=step.number,
        at=step.record.timestamp,
        kind=turn.kind if turn else "",
        text=str((step.message or {}).get("text", "")),
        said=[(str(each.get("by", "system")), str(each["text"])) for each in step.told if each["role"] == "user"],
        calls=[_call_node(step, message, call, effects, decided) for message, call in step.calls],
        tokens=[usage.input_tokens, usage.output_tokens],
        cost_usd=usage.cost_usd,
        model=turn.model if turn else "",
    )


def _call_node(
    step: Step,
    message: dict[str, Any],
    call: Call | None,
    effects: dict[str, EffectRecord],
    decided: Mapping[str, Decision],
) -> CallNode:
    name = call.operation_id if call and call.operation_id else ""
    effect = effects.get(name)
    answer = step.answers.get(message["id"])
    return CallNode(
        id=message["id"],
        tool=call.tool if call else message["tool"],
        arguments=json.loads(message["arguments"]),
        decision=decision_of(call, effect, answer, decided.get(name)),
        answer=answer,
        effect=effect.model_dump(exclude={"canonical_request", "result", "abandoned"}) if effect else None,
    )


def decision_of(
    call: Call | None, effect: EffectRecord | None, answer: str | None, decided: Decision | None = None
) -> str:
    """What was decided on a call, and by whom, as far as the store and the run's log (`decided`) tell."""
    if call is None:
        return ""
    if call.decision == "answered":
        return f"not run: {call.reason}"
    if call.decision == "allow" and decided is None:
        return "allowed"
    if effect is not None and effect.approved_by:
        return f"approved by {effect.approved_by}"
    if decided is not None and (said := _words(call, decided)):
        return said
    if call.decision == "question":
        return "asked" if answer is None else "answered by a person"
    if answer is None:
        return "asks a person"
    if any(words in answer for words in _REFUSALS):
        return preview(answer, 300)
    return "not run" if call.effect != "read" else "decided by a person"


def _words(call: Call, decided: Decision) -> str | None:
    """One line of the run's log as what it means for the call; None for what decides nothing."""
    by, reason = decided.get("by") or "a person", f": {decided['reason']}" if decided.get("reason") else ""
    return {
        "approved": f"approved by {by}",
        "edited": f"approved by {by}, with other arguments",
        "denied": f"denied by {by}{reason}",
        "expired": "nobody decided in time",
        "answered": f"answered by {by}" if call.decision == "question" else f"not run: answered by {by}{reason}",
    }.get(str(decided.get("decision")))


def effects_of(turns: Sequence[TurnNode]) -> list[dict[str, Any]]:
    """What these turns did to the world, or may have done, and what is not undone."""
    found = [call.effect for turn in turns for call in turn.calls if call.effect is not None]
    return [effect for effect in found if effect["status"] not in NOTHING_HAPPENED]
