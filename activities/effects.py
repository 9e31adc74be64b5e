"""The sandwich around an effect: prepare, execute under a deadline shorter than the lease, commit.

A retry that finds the outcome returns it. One that finds only the intent never takes it for "not executed": an
idempotent call repeats at once with the same key; any other waits until the earlier attempt cannot be alive any more,
takes the next claim, and then looks outside, or does what the tool's author chose for an unknown outcome.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from activities.canonical import preview
from activities.checkpoints import now_iso
from activities.ledger import Claim, End, Ledger, Outcome, Prepared, Review
from activities.tools import Operation, Tool, ToolError
from activities.tools.executor import Executor
from workflows.catalog import LEASE_GRACE
from workflows.records import Ref, Resolution

Write = Callable[[str], Awaitable[Ref]]
"""Stores the text that answers the call and gives its reference."""


class Unknown(Exception):
    """The attempt ended and nobody knows whether the effect happened."""


@dataclass(frozen=True)
class Sandwich:
    """One attempt at one operation. `token` names the attempt; `last` says that no further attempt will come."""

    ledger: Ledger
    executor: Executor
    tool: Tool
    op: Operation
    record: Prepared
    on_unknown: Literal["review", "skip", "retry"]
    write: Write
    to_text: Callable[[Any], str]
    last: bool

    @property
    def thread(self) -> str:
        return self.op.thread

    async def perform(self, resolution: Resolution | None = None) -> Outcome | Review | Literal["taken"]:
        """Runs the attempt to an outcome, or to a review. Raises what the tool raised where a retry is safe."""
        held, mine = await self.ledger.prepare(self.thread, self.record)
        if held.request_digest != self.record.request_digest:
            return "taken"
        if (ended := await self.ledger.outcome(self.thread, held.operation_id)) is not None:
            return ended
        if resolution is not None and resolution.outcome != "not_happened":
            return await self._as_told(resolution)
        if mine:
            return await self._execute(1, certain=True)
        return await self._recover(held, told=resolution is not None)

    async def _recover(self, held: Prepared, told: bool) -> Outcome | Review:
        repeats = self.record.effect == "idempotent" and key_is_valid(held)
        claims = await self.ledger.claims(self.thread, held)
        if not repeats:
            await self._wait_out(claims[-1])
        number = claims[-1].attempt + 1
        claim = self.record.claim.model_copy(update={"attempt": number, "claimed_at": now_iso()})
        if not await self.ledger.claim(self.thread, held.operation_id, claim):
            raise Unknown(f"another attempt took claim {number} of {held.operation_id}")
        if (ended := await self.ledger.outcome(self.thread, held.operation_id)) is not None:
            return ended
        if told:
            return await self._execute(number, certain=True)
        if self.tool.lookup_fn is not None:
            return await self._look_up(number) or await self._execute(number, certain=True)
        if repeats or self.record.effect == "read":
            return await self._execute(number, certain=True)
        if self.on_unknown == "retry":
            return await self._execute(number, certain=False)
        return await self._unknown(number, "an earlier attempt ended without saying whether it acted")

    async def _execute(self, number: int, certain: bool) -> Outcome | Review:
        """`certain`: when the tool refuses, nothing happened, since no earlier attempt can have acted unseen."""
        try:
            value = await self.executor.run(self.tool, dict(self.op.arguments), self.op, self.tool.timeout)
        except ToolError as error:
            if not certain:
                return await self._review(number, "an earlier attempt may have acted; this one was refused")
            return await self._end("NOT_EXECUTED", "executed", f"Error: {error}", number, error=True)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            return await self._failed(number, error)
        return await self._end("COMMITTED", "executed", self.to_text(value), number, external_id=outside_id(value))

    async def _failed(self, number: int, error: Exception) -> Outcome | Review:
        """The tool broke, so whether it acted is unknown: look if one can, let the server try again if that is safe."""
        said = f"the tool failed with {type(error).__name__}"
        if self.tool.lookup_fn is not None and (found := await self._look_up(number)) is not None:
            return found
        may_repeat = self.tool.lookup_fn is not None or self.record.effect == "idempotent" or self.on_unknown == "retry"
        if may_repeat and not self.last:
            raise error
        return await (self._review if may_repeat else self._unknown)(number, said)

    async def _look_up(self, number: int) -> Outcome | Review | None:
        """What the outside world says; None when it surely did not happen."""
        try:
            assert self.tool.lookup_fn is not None
            found = await self.executor.call(self.tool.lookup_fn, self.op, seconds=self.tool.timeout)
        except Exception as error:  # it cannot tell: the same question later, and at the end to a person
            if not self.last:
                raise
            return await self._review(number, f"the look-up failed with {type(error).__name__}")
        if found is None:
            return None
        return await self._end("COMMITTED", "found", self.to_text(found), number, external_id=outside_id(found))

    async def _unknown(self, number: int, reason: str) -> Outcome | Review:
        if self.on_unknown == "skip":
            text = f"Not known whether {self.tool.name} happened ({reason}). By its rule it was not tried again."
            return await self._end("SKIPPED", "rule", text, number)
        return await self._review(number, reason)

    async def _review(self, number: int, reason: str) -> Review:
        review = Review(reason=f"{reason} (attempt {number})", since=now_iso())
        await self.ledger.review(self.thread, self.op.operation_id, review)
        return review

    async def _as_told(self, resolution: Resolution) -> Outcome:
        attempts = len(await self.ledger.claims(self.thread, self.record))
        if resolution.outcome == "happened":
            result = "" if resolution.result is None else f" Result: {self.to_text(resolution.result)}"
            text = f"{resolution.by} confirmed that this happened.{result}"
            return await self._end("COMMITTED", "person", text, attempts, by=resolution.by)
        text = f"{resolution.by} gave this up. Not known whether it happened; it was not tried again."
        return await self._end("SKIPPED", "person", text, attempts, by=resolution.by, error=True)

    async def _end(
        self,
        status: End,
        how: Literal["executed", "found", "person", "rule"],
        text: str,
        attempts: int,
        external_id: str | None = None,
        by: str | None = None,
        error: bool = False,
    ) -> Outcome:
        outcome = Outcome(
            operation_id=self.op.operation_id,
            status=status,
            how=how,
            answer=await self.write(text),
            error=error,
            external_id=external_id,
            by=by,
            attempts=attempts,
            committed_at=now_iso(),
        )
        return await self.ledger.finish(self.thread, outcome)

    async def _wait_out(self, claim: Claim) -> None:
        """The earlier attempt may still act. Clocks of other machines say nothing, so its whole lease is waited here,
        on this machine's own, from the moment it was seen; an outcome that appears meanwhile ends the wait."""
        end = time.monotonic() + claim.lease
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 1.0))
            if await self.ledger.outcome(self.thread, self.op.operation_id) is not None:
                return


def lease_of(timeout: float) -> float:
    """How long a claim may be acting: the tool's deadline and some grace, in seconds."""
    return timeout + LEASE_GRACE


def key_is_valid(held: Prepared) -> bool:
    """Whether the other side still honours the key: within `key_valid` seconds of the intent."""
    since = datetime.fromisoformat(held.prepared_at)
    return datetime.now(UTC) - since < timedelta(seconds=held.key_valid)


def outside_id(value: Any) -> str | None:
    """The id that the other side gave, where the result has one (`external_id` or `id`)."""
    for name in ("external_id", "id"):
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if isinstance(found, str | int) and not isinstance(found, bool):
            return preview(str(found), 200)
    return None
