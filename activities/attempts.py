"""One attempt at an operation: what it holds, and how it writes what it knows to the ledger."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from activities.canonical import preview
from activities.checkpoints import now_iso
from activities.effect_records import Claim, End, How, IllegalTransition, Outcome, Prepared, Review
from activities.errors import StoreUnavailable
from activities.ledger import Ledger
from activities.tools import ToolError
from workflows.catalog import LEASE_GRACE
from workflows.records import Ref, Resolution

T = TypeVar("T")
Ended = Outcome | Review | Literal["taken"]

COMMIT_SECONDS = 20.0
"""How long an attempt that has acted tries to record it in a store that fails."""


class Unknown(Exception):
    """Another attempt is at work on the operation; this one has done nothing."""


class Stopped(Exception):
    """The run was cancelled, or is gone, before this attempt began to act."""


@dataclass(frozen=True)
class Deed:
    """What is done to the world within `timeout` seconds, and how to find out whether it was (`look` gives None when it
    surely was not, and raises when it cannot tell)."""

    act: Callable[[], Awaitable[Any]]
    look: Callable[[], Awaitable[Any]] | None
    timeout: float


@dataclass(frozen=True)
class Hold:
    """A claim of this attempt, and when (on this machine's own clock) it began to take it."""

    number: int
    since: float


@dataclass(frozen=True)
class Attempt:
    """What an attempt holds. `answer` stores a text for the model, and the result where that is another one (else
    None); `to_text` makes one of a result; `redact` hides secrets; `last` says that no further attempt will come,
    `stopped` that nothing should begin any more. `ages`: for how many seconds each claim has been seen, which the
    attempts of one activity hand on; `seen`: when this one looked at it last."""

    ledger: Ledger
    thread: str
    record: Prepared
    deed: Deed
    on_unknown: Literal["review", "skip", "retry"]
    answer: Callable[[str, str | None], Awaitable[Ref]]
    to_text: Callable[[Any], Awaitable[str]]
    last: bool
    redact: Callable[[str], str] = str
    stopped: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ages: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)

    @property
    def operation(self) -> str:
        return self.record.operation_id

    def _held(self, number: int, since: float) -> Hold:
        """This attempt's own claim, which it knows since before it stood there."""
        self.seen[self._named(number)] = since
        return Hold(number, since)

    def _age(self, claim: Claim) -> float:
        """For how many seconds it has been seen, at least: by this attempt, and by those before it."""
        name, now = self._named(claim.attempt), self.clock()
        self.ages[name] = self.ages.get(name, 0.0) + now - self.seen.get(name, now)
        self.seen[name] = now
        return self.ages[name]

    def _named(self, number: int) -> str:
        return f"{self.operation}#{number}"

    async def _review(self, number: int, reason: str) -> Ended:
        said = preview(f"{reason} (attempt {number})", 500)
        try:
            return await self._lasting(lambda: self.ledger.review(self.thread, self.operation, said, now_iso()))
        except IllegalTransition:
            return await self._on_record()

    async def _not_executed(self, number: int, how: How, text: str) -> Outcome:
        """Nothing happened. Before that is written the next claim is taken as the end of all claims: another attempt
        that has it may be acting at this very moment, and then it is not true."""
        fence = await self._claim(number + 1, refused=True)
        if not isinstance(fence, Hold):
            return fence
        return await self._end("NOT_EXECUTED", how, text, number, error=True)

    async def _claim(self, number: int, word: str | None = None, refused: bool = False) -> Hold | Outcome:
        """Takes that claim, unless the operation has ended. Raises Unknown when another attempt has taken it."""
        since = self.clock()
        claim = self.record.claim.model_copy(update={"attempt": number, "claimed_at": now_iso(), "word": word})
        claim = claim.model_copy(update={"refused": refused})
        try:
            if await self.ledger.claim(self.thread, self.operation, claim):
                return self._held(number, since)
        except IllegalTransition:
            return await self._on_record()
        raise Unknown(f"another attempt took claim {number} of {self.operation}")

    async def _on_record(self) -> Outcome:
        held = await self.ledger.outcome(self.thread, self.operation)
        if held is None:
            raise Unknown(f"{self.operation} is in no state to be worked on")
        return held

    async def _as_told(self, resolution: Resolution) -> Outcome:
        attempts = len(await self.ledger.claims(self.thread, self.record))
        if resolution.outcome == "happened":
            text, given = f"{resolution.by} confirmed that this happened.", resolution.result
            if given is None:
                return await self._end("COMMITTED", "person", text, attempts, by=resolution.by)
            result = await self._shown(given)
            text, outside = f"{text} Result: {result}", self._outside_id(given)
            return await self._end("COMMITTED", "person", text, attempts, False, outside, resolution.by, result)
        text = f"{resolution.by} gave this up. Not known whether it happened; it was not tried again."
        return await self._end("SKIPPED", "person", text, attempts, error=True, by=resolution.by)

    async def _happened(self, hold: Hold, how: How, value: Any) -> Outcome:
        text = await self._shown(value)
        return await self._end("COMMITTED", how, text, hold.number, external_id=self._outside_id(value))

    def _outside_id(self, value: Any) -> str | None:
        found = outside_id(value)
        return None if found is None else self.redact(found)

    async def _shown(self, value: Any) -> str:
        """The result as text. It happened, whatever its result looks like."""
        try:
            return await self._lasting(lambda: self.to_text(value))
        except ToolError as error:
            return f"It happened, but its result cannot be shown: {error}"

    async def _end(
        self,
        status: End,
        how: How,
        text: str,
        attempts: int,
        error: bool = False,
        external_id: str | None = None,
        by: str | None = None,
        result: str | None = None,
    ) -> Outcome:
        body = await self._lasting(lambda: self.answer(text, result))
        outcome = Outcome(
            operation_id=self.operation,
            status=status,
            how=how,
            answer=body,
            error=error,
            external_id=external_id,
            by=by,
            told=result is not None,
            attempts=attempts,
            committed_at=now_iso(),
        )
        return await self._lasting(lambda: self.ledger.finish(self.thread, outcome))

    async def _lasting(self, act: Callable[[], Awaitable[T]]) -> T:
        """Does it again while the store fails: what is known of the world must not be lost to a short fault."""
        end = self.clock() + COMMIT_SECONDS
        while True:
            try:
                return await act()
            except StoreUnavailable:
                if self.clock() >= end:
                    raise
            await self.sleep(0.5)

    @property
    def _lease(self) -> float:
        return self.record.claim.lease


def lease_of(timeout: float) -> float:
    """How long a claim may be acting: the tool's deadline and some grace, in seconds."""
    return timeout + LEASE_GRACE


def outside_id(value: Any) -> str | None:
    """The id that the other side gave, where the result has one (`external_id` or `id`)."""
    for name in ("external_id", "id"):
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if isinstance(found, str | int) and not isinstance(found, bool):
            return preview(str(found), 200)
    return None
