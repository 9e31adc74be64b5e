"""Rehearsing: the recorded answers of a model and its tools, judged as another bundle would judge them.

Nothing is asked and nothing is written: calls are judged over an empty store in memory, by the judge that runs use.
What a session or a person did on the way is taken as it was recorded.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities import compaction
from activities.ancestry import Ancestry
from activities.context import Messages
from activities.entries import Entries
from activities.judge import Bench, Judged
from activities.ledger import Ledger
from activities.manifest import Manifest
from activities.reply import RawCall, price_usage
from activities.sessions import CHARACTERS_PER_TOKEN, estimate
from activities.store import open_store
from activities.tools import Registry
from scripts.past import Step
from workflows.records import Call, TurnRequest, Usage

_FAULTS = {"unknown_tool": "tool_gone", "unfit": "invalid", "too_many": "too_many", "truncated": "not_run"}


@dataclass(frozen=True)
class Finding:
    """One thing that would be otherwise. `kind`: tool_gone, invalid, denied, asks, asks_no_more, runs_now, too_many,
    not_run, effect, arguments, over_budget, context, or chooses (what another model said)."""

    turn: int
    kind: str
    said: str
    call: str | None = None


@dataclass(frozen=True)
class Size:
    """Input tokens of a turn's request, then and now. `estimated`: neither is a server's count."""

    turn: int
    then: int
    now: int
    estimated: bool


@dataclass
class Rehearsal:
    """What came of it. `sent`: what would be sent differently in every request."""

    then: str
    now: str
    sent: dict[str, Any]
    sizes: list[Size] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    @property
    def turns(self) -> int:
        """How many turns were gone through."""
        return len(self.sizes)


@dataclass(frozen=True)
class Asked:
    """A turn as it was asked for: the step, and what the model had been told."""

    step: Step
    context: Messages

    @property
    def bundle(self) -> str:
        """The digest of the manifest that the run was pinned to."""
        return self.step.record.versions.get("bundle_digest", "")


def asked_turns(steps: Sequence[Step]) -> list[Asked]:
    """Each turn with its context; a session begins with its own."""
    found, context = list[Asked](), Messages()
    for step in steps:
        context = [*([] if step.record.base else context), *step.new]
        if step.number > 0:
            found.append(Asked(step, context))
        context = [*context, step.message] if step.message is not None else context
    return found


async def rehearse(
    turns: Sequence[Asked], pinned: Mapping[str, Manifest], now: Manifest, registry: Registry
) -> Rehearsal:
    """The recorded turns against the bundle `now`. `pinned`: the manifests that the run had, by digest."""
    then = pinned[turns[-1].bundle]
    found = Rehearsal(f"{then.name}@{then.version}", f"{now.name}@{now.version}", sent_differently(then, now))
    scratch = open_store("memory://")
    entries, ledger, numbers = Entries(scratch), Ledger(scratch), dict[str, int]()
    ancestry, spending = Ancestry(scratch, ledger, entries), _Spending(now)
    crossed = False
    for turn in turns:
        size = size_of(turn, pinned[turn.bundle], now)
        found.sizes.append(size)
        crossed = crossed and not turn.step.record.base
        if not crossed and (said := _too_full(turn, size, now)) is not None:
            crossed = True
            found.findings.append(Finding(size.turn, "context", said))
        found.findings += spending.before(size.turn)
        bench = Bench(_request(turn, numbers), now, registry, entries, ledger, ancestry, turn.context, _cut(turn))
        found.findings += await _judge(turn, bench)
        numbers = bench.numbers or numbers
        spending.book(turn, size)
    found.usage = spending.usage
    return found


async def _judge(turn: Asked, bench: Bench) -> list[Finding]:
    calls = turn.step.calls
    raw = [RawCall(message["provider_id"], message["tool"], message["arguments"]) for message, _ in calls]
    judged = await bench.judge(raw)
    found = []
    for (message, then), now in zip(calls, judged, strict=False):
        if then is None or then.denied_by == "person" or "malformed_arguments" in json.loads(message["arguments"]):
            continue  # what a person said, and what was never JSON, no bundle makes otherwise
        if (finding := _compare(turn.step.number, then, now)) is not None:
            found.append(finding)
    return found


def _compare(turn: int, then: Call, judged: Judged) -> Finding | None:
    now, what = judged.call, f"{then.tool}: "
    if now.decision == "answered":
        if then.decision == "answered":
            return None
        kind = "denied" if now.denied_by else _FAULTS.get(judged.fault or "", "not_run")
        return Finding(turn, kind, what + (now.reason or ""), then.id)
    if now.decision != then.decision:
        kind = {"allow": "asks_no_more", "ask": "asks", "question": "asks"}[now.decision]
        if then.decision == "answered":
            return Finding(turn, "runs_now", f"{what}{now.decision}; it was not run: {then.reason}", then.id)
        said = now.reason or "no person is asked any more"
        return Finding(turn, kind, what + said, then.id)
    if now.effect != then.effect:
        return Finding(turn, "effect", f"{what}it recovers as {now.effect}, not as {then.effect}", then.id)
    if then.arguments is not None and now.arguments is not None and now.arguments != then.arguments:
        said = f"{what}it would run with {json.dumps(now.arguments, ensure_ascii=False)[:200]}"
        return Finding(turn, "arguments", said, then.id)
    return None


def _request(turn: Asked, numbers: dict[str, int]) -> TurnRequest:
    record = turn.step.record
    return TurnRequest(
        thread=record.thread,
        branch=record.branch,
        turn=record.sequence,
        head=record.head(),
        new=[],
        bundle="",
        numbers=numbers,
    )


def _cut(turn: Asked) -> bool:
    return turn.step.turn is not None and "truncated" in turn.step.turn.faults


def size_of(turn: Asked, then: Manifest, now: Manifest) -> Size:
    """The server's count, and that count with what differs; estimates where there is no count of that one request."""
    usage, (shown, _) = turn.step.record.usage, compaction.compacted(turn.context)
    before, after = (estimate(shown, each) + offered(each) for each in (then, now))
    counted = usage.requests == 1 and not usage.estimated and usage.input_tokens > 0
    recorded = usage.input_tokens if counted else before
    return Size(turn.step.number, recorded, max(0, recorded + after - before), not counted)


def offered(manifest: Manifest) -> int:
    """Tokens of the prompt and the tools, about."""
    tools = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in manifest.tools]
    return (len(manifest.prompt) + len(json.dumps(tools, ensure_ascii=False))) // CHARACTERS_PER_TOKEN


def _too_full(turn: Asked, size: Size, now: Manifest) -> str | None:
    if turn.step.number < 2 or turn.step.record.base:
        return None
    rules, limit = now.file.session, now.file.model[0].context_tokens
    most = limit * (1.0 if rules.boundary == "off" else rules.at)
    if size.now < most:
        return None
    then = "the run would be parked" if rules.boundary == "off" else f"a new session would begin ({rules.boundary})"
    return f"about {size.now} tokens, of {most:.0f} that the context may have: {then}"


class _Spending:
    """What the turns would have cost under a bundle, against its limits; each limit is told of once."""

    def __init__(self, manifest: Manifest) -> None:
        self._price, self._limits = manifest.file.model[0].price, manifest.file.budget
        self.usage, self._turns, self._calls = Usage(), 0, 0
        self._told: set[str] = set()

    def before(self, turn: int) -> list[Finding]:
        tokens = self.usage.input_tokens + self.usage.output_tokens
        used = {"turns": self._turns, "tokens": tokens, "tool_calls": self._calls, "cost_usd": self.usage.cost_usd}
        found = []
        for name, value in used.items():
            limit = getattr(self._limits, name)
            if limit is not None and value >= limit and name not in self._told:
                self._told.add(name)
                found.append(Finding(turn, "over_budget", f"the limit of {limit:g} {name} is reached before this turn"))
        return found

    def book(self, turn: Asked, size: Size) -> None:
        usage = turn.step.record.usage
        fresh = max(0, size.now - usage.cached_tokens) if usage.requests == 1 else usage.input_tokens
        self.usage = self.usage.plus(price_usage(fresh, usage.cached_tokens, usage.output_tokens, self._price))
        self._turns += 1
        self._calls += sum(call is not None and call.decision != "answered" for _, call in turn.step.calls)


def sent_differently(then: Manifest, now: Manifest) -> dict[str, Any]:
    """What every request would hold that it did not, and the other way round; empty where they are the same."""
    found: dict[str, Any] = {}
    if then.prompt != now.prompt:
        lines = difflib.unified_diff(then.prompt.splitlines(), now.prompt.splitlines(), "then", "now", lineterm="")
        found["prompt"] = list(lines)[2:]
    before, after = ({tool.name: tool for tool in each.tools} for each in (then, now))
    tools = {
        "added": sorted(set(after) - set(before)),
        "gone": sorted(set(before) - set(after)),
        "changed": sorted(name for name in set(before) & set(after) if before[name].digest != after[name].digest),
    }
    if any(tools.values()):
        found["tools"] = tools
    if models := _changed(
        [each.model_dump() for each in then.file.model], [each.model_dump() for each in now.file.model]
    ):
        found["model"] = models
    if (most := now.file.limits.tool_output) != then.file.limits.tool_output:
        found["tool_output"] = {"then": then.file.limits.tool_output, "now": most}
    return found


def _changed(then: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    lines = []
    for number in range(max(len(then), len(now))):
        before, after = (each[number] if number < len(each) else {} for each in (then, now))
        lines += [
            f"route {number + 1}: {name}: {before.get(name)} -> {after.get(name)}"
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
    return lines
