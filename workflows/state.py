"""All that a run carries: one object, whole through continue-as-new, small however long the run is."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from workflows.carried import Carried
from workflows.child_records import ChildEnd
from workflows.fork_records import ForkPoint
from workflows.keys import checkpoint_key
from workflows.parking import PARKS as PARKS
from workflows.records import Call, EffectRecord, Files, Head, Item, Limits, Opening, Turn, Usage
from workflows.requests import KEPT, shown
from workflows.session_records import Conclusion, Handoff
from workflows.side_records import SpentRequest
from workflows.undoing_records import UndoStep
from workflows.upgrade_records import Upgrading

WORKFLOW_VERSION = "1"
STATE_SCHEMA = "1"
RUNNING = ("workflow", "build_id")
"""What `versions` says of the worker that runs the workflow; the rest is the bundle's."""


class Used(BaseModel):
    """What counts against the limits beside tokens and cost. `seconds` leaves out the time spent waiting."""

    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0.0


class Tail(BaseModel):
    """The last entries of a list, and how many there were in all."""

    last: list[Any] = Field(default_factory=list)
    total: int = 0

    def add(self, entry: Any) -> None:
        """Appends, and lets the oldest go beyond the kept number."""
        self.last.append(entry)
        self.total += 1
        del self.last[:-KEPT]


class RunState(Carried[Opening]):
    """The position of a run between two workflow tasks.

    `branched`: a path was left, by a reset, a retry or an edit. Of a reset to the very start only the execution's id
    tells, which a replay elsewhere does not know. So what is *done* goes by `left`: the same, once the history says it.
    `asking`: what the model is asked for, until what it cost is booked.
    """

    branched: bool = False
    left: bool = False
    head: Head | None = None
    turn: Turn | None = None
    answers: dict[str, Item] = Field(default_factory=dict)
    new: list[Item] = Field(default_factory=list)
    inbox: list[Item] = Field(default_factory=list)
    numbers: dict[str, int] = Field(default_factory=dict)
    used: Used = Field(default_factory=Used)
    session: int = 1
    effects: dict[str, EffectRecord] = Field(default_factory=dict)
    effects_total: int = 0
    abandoned: dict[str, EffectRecord] = Field(default_factory=dict)
    undo: list[UndoStep] = Field(default_factory=list)
    facts: list[Item] = Field(default_factory=list)
    steps: Tail = Field(default_factory=Tail)
    checkpoints: Tail = Field(default_factory=Tail)
    finishing: bool = False
    idle: bool = False
    bad_turns: int = 0
    faults: dict[str, int] = Field(default_factory=dict)
    quirks: dict[str, list[str]] = Field(default_factory=dict)
    reserve: Usage | None = None
    busy_since: datetime | None = None
    files: Files = Files()
    base: str | None = None
    handoff_by: str | None = None
    handoff: dict[str, Any] | None = None
    upgrade: Upgrading | None = None
    sent: Limits = Limits()
    parent: ForkPoint | None = None
    conclusion: Conclusion | None = None
    asking: SpentRequest | None = None

    @property
    def at(self) -> Head:
        """The last checkpoint of a run that is open."""
        assert self.head is not None, "the run is not open yet"
        return self.head

    def book_opening(self, opening: Opening) -> None:
        """Books the opening, with its checkpoint."""
        self.begin(opening, opening.limits)
        self.head, self.files = opening.head, opening.files
        self.book_checkpoint(opening.head, "open", opening.bytes, opening.at, None)

    def book_turn(self, turn: Turn) -> None:
        """Books a turn: its usage, its numbers, its checkpoint, its line of the transcript."""
        parent = self.at.sha256
        self.turn, self.head, self.new, self.base = turn, turn.head, [], None
        self.used.turns += 1
        self.usage = self.usage.plus(turn.usage)
        for call in turn.calls:
            if call.operation_id is not None:
                self.numbers[call.tool] = self.numbers.get(call.tool, 0) + 1
        calls = [
            {
                "id": c.id,
                "tool": c.tool,
                "arguments": c.arguments_preview if c.arguments is None else shown(c.arguments),
            }
            for c in turn.calls
        ]
        self.steps.add({"role": "assistant", "text": turn.text, "calls": calls, "answers": {}})
        self.book_checkpoint(turn.head, f"turn-{turn.head.sequence}", turn.bytes, turn.at, parent)
        effects = [call.fingerprint for call in turn.calls if call.effect != "read" and call.fingerprint]
        self.checkpoints.last[-1]["effects"] = effects
        if turn.abandoned is not None:
            self.abandoned = {effect.operation_id: effect for effect in turn.abandoned}
        futile = turn.kind == "empty" or (turn.kind == "calls" and all(_futile(c) for c in turn.calls))
        self.bad_turns = self.bad_turns + 1 if futile else 0
        self.faults = {fault: self.faults.get(fault, 0) + 1 for fault in turn.faults}
        self.quirks = {**self.quirks, **turn.quirks}
        self.reserve = turn.reserve
        self.left = self.left or turn.branched

    def book_checkpoint(self, head: Head, step_id: str, size: int, at: str, parent: str | None) -> None:
        """Books one line of the query `checkpoints`."""
        key = checkpoint_key(self.opened.thread, head.branch, head.sequence)
        line = {"sequence": head.sequence, "key": key, "sha256": head.sha256, "parent": parent, "step_id": step_id}
        self.checkpoints.add({**line, "status": "completed", "timestamp": at, "bytes": size, "effects": []})

    def book_answer(self, item: Item, shown: str) -> None:
        """Books the one answer of a call; its preview has been in history once, which is enough."""
        assert item.call is not None
        self.answers[item.call] = item if item.ref is None else Item(ref=item.ref.bare(), call=item.call)
        self.steps.last[-1]["answers"][item.call] = shown

    def book_effect(self, effect: EffectRecord) -> None:
        """Books what the ledger says of an operation; the last ones are kept."""
        if effect.operation_id in self.abandoned:
            effect = effect.model_copy(update={"abandoned": True})
            if effect.status not in ("COMPENSATED", "NOT_EXECUTED"):
                self.abandoned[effect.operation_id] = effect
                return
            del self.abandoned[effect.operation_id]
        if effect.operation_id not in self.effects:
            self.effects_total += 1
        self.effects[effect.operation_id] = effect
        for name in list(self.effects)[:-KEPT]:
            del self.effects[name]

    def all_effects(self) -> list[EffectRecord]:
        """The last ones of paths that were left, then the run's own last ones: neither push the others out."""
        left, own = list(self.abandoned.values()), list(self.effects.values())
        left = left[-max(KEPT - len(own), KEPT // 2) :]
        return [*left, *own[-(KEPT - len(left)) :]]

    def book_change(self, change: str | None) -> None:
        """Books that a call changed the workspace."""
        if change is not None:
            self.files = self.files.plus(change)

    def book_handoff(self, handed: Handoff) -> None:
        """Begins the next session, into which all that was new has gone."""
        self.reserve = None  # the next call reads another context
        self.base, self.new, self.handoff_by = handed.base, [], None
        self.session += 1
        self.usage = self.usage.plus(handed.usage)
        self.handoff = {"key": handed.key, "sha256": handed.sha256, "mode": handed.mode, **handed.artifact}

        waiting = self.upgrade.opening if self.upgrade is not None else None
        if handed.opening is not None:
            self.book_upgrade(handed.opening, self.sent)
        elif waiting is not None and waiting.bundle.digest == handed.upgraded:  # by a worker of an earlier release
            self.book_upgrade(waiting, Limits())
        if waiting is not None and waiting.bundle.digest == self.opened.bundle.digest:
            self.upgrade = None

    def book_upgrade(self, opening: Opening, sent: Limits) -> None:
        """Goes on under another version of the bundle. Limits that a person sent stand."""
        before, after = self.opened.limits.model_dump(), opening.limits.model_dump()
        kept = {name: limit for name, limit in self.limits.model_dump().items() if limit != before[name]}
        self.limits = Limits(**{**after, **kept, **sent.model_dump(exclude_none=True)})
        versions = {**opening.versions, **{name: self.opened.versions[name] for name in RUNNING}}
        self.opening = opening.model_copy(update={"versions": versions})

    def book_files(self, asked: Files, folded: Files | None) -> None:
        """Books the workspace as a turn recorded it: the same state as `asked`, and what has changed meanwhile."""
        if folded is not None:
            since = [change for change in self.files.changes if change not in asked.changes]
            self.files = Files(base=folded.base, changes=[*folded.changes, *since])

    def end_turn(self) -> None:
        """Puts the answers, in call order, into the next request."""
        assert self.turn is not None
        self.new += [self.answers[call.id] for call in self.turn.calls]
        if self.turn.nudge is not None:
            self.new.append(Item(text=self.turn.nudge))
        self.turn, self.answers = None, {}
        self.requests.settle()

    def read_inbox(self) -> None:
        """Moves what people said into the next request, in the order in which it came."""
        for item in self.inbox:
            self.steps.add({"role": "user", "text": (item.text or "")[:200], "calls": [], "answers": {}})
        self.new += [*self.facts, *self.inbox]
        self.facts, self.inbox = [], []

    def last_text(self) -> str | None:
        """How the model's last message began: what there is when a run ends without an answer."""
        return next((str(step["text"]) for step in reversed(self.steps.last) if step["role"] == "assistant"), None)

    def book_child(self, call: str, end: ChildEnd) -> None:
        """Books the end of a child: what it used counts here, with all below it."""
        if call in self.family.children:
            self.usage = self.usage.plus(end.usage)
            self.family.book_end(call, end)

    def used_now(self) -> dict[str, float]:
        """What is used of each limit, by this run and by its children that have ended."""
        return self.spent(self.used.turns, self.used.tool_calls, self.used.seconds)

    def reached(self) -> dict[str, float]:
        """The limits that are reached, or would be passed by what the next model call costs at least."""
        limits, used, needed = self.limits.model_dump(exclude_none=True), self.used_now(), self.needed_now()
        return {name: limit for name, limit in limits.items() if used[name] >= limit or needed[name] > limit}

    def needed_now(self) -> dict[str, float]:
        """What is used of each limit, with what the next model call costs at least."""
        reserve = self.reserve or Usage()
        next_call = {"tokens": reserve.input_tokens, "cost_usd": reserve.cost_usd}
        return {name: used + next_call.get(name, 0) for name, used in self.used_now().items()}

    def calls_left(self) -> int | None:
        """How many tool calls the limit still allows."""
        most = self.limits.tool_calls
        return None if most is None else max(0, most - int(self.used_now()["tool_calls"]))

    def too_faulty(self) -> str | None:
        """Why the model's faults end the run; None while they do not."""
        turn, opened = self.turn, self.opened
        last = "" if turn is None else turn.nudge or turn.text or "empty"
        if self.bad_turns >= opened.max_bad_turns:
            return f"{self.bad_turns} turns in a row held nothing that can be used; the last: {last}"
        for fault, count in self.faults.items():
            if count >= opened.max_faults.get(fault, opened.max_faults.get("any", count + 1)):
                return f"{count} turns in a row had the same fault ({fault}); the last: {last}"
        return None

    def waiting_on(self) -> list[str]:
        """What the run waits for, apart from its own work."""
        found: list[str] = [request.kind for request in self.requests.open()]
        if self.idle:
            found.append("message")
        if self.problem is not None:
            found.append(PARKS[self.problem.type][0])
        if self.family.children:
            found.append("children")
        return list(dict.fromkeys(found))


def _futile(call: Call) -> bool:
    """A call that nobody can use. One that a person denied before counts as a denial instead."""
    return call.decision == "answered" and call.denied_by != "person"
