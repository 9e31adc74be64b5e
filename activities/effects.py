"""The sandwich around an effect: prepare, execute under a deadline shorter than the lease, commit.

A retry that finds the outcome returns it. One that finds only the intent never takes it for "not executed": an
idempotent call repeats at once with the same key; any other waits until the earlier attempt cannot be alive any more,
takes the next claim, and then looks outside, or does what the tool's author chose for an unknown outcome.

Two laws, which everything here keeps:
- Who acts holds the newest claim, took it less than `FRESH` seconds ago, and stops before that claim's lease ends.
- `NOT_EXECUTED` is written only where no attempt can have acted (the first one, or after every older lease has ended
  and a look-up or a person said so), and none can act any more: the next claim is taken as the end of all claims.
"""

from datetime import UTC, datetime, timedelta

from activities.attempts import Attempt, Deed, Ended, Hold, Stopped, Unknown, lease_of, outside_id
from activities.effect_records import Claim, Prepared
from activities.noting import note
from activities.tools import ToolError
from workflows.catalog import LEASE_GRACE
from workflows.records import Resolution

__all__ = ["FRESH", "Deed", "Sandwich", "Told", "lease_of", "outside_id"]

FRESH = LEASE_GRACE / 2
"""Seconds after which a claim is too old to begin acting on: the deadline must stay inside the lease."""


class Told(Exception):
    """A failure whose text may be shown to people and recorded."""


class Sandwich(Attempt):
    """Decides what an attempt does: nothing here touches the store or the world but through what it holds."""

    async def perform(self, resolution: Resolution | None = None) -> Ended:
        """Runs the attempt to an outcome, or to a review. Raises what the tool raised where a retry is safe."""
        began = self.clock()
        held, mine = await self.ledger.prepare(self.thread, self.record)
        if not mine and (ended := await self._ended(held)) is not None:
            note(recorded=ended != "taken")
            return ended
        if resolution is not None and resolution.outcome != "not_happened":
            return await self._as_told(resolution)
        if mine:
            return await self._execute(self._held(1, began), certain=True)
        return await self._recover(held, resolution)

    async def doubt(self, reason: str) -> Ended:
        """No attempt is left. What was never begun cannot begin any more. Anything else is looked for outside, or where
        nobody can look it is for a person; both when the last attempt cannot be alive any more: a word about a world
        that still changes is worth nothing."""
        held, mine = await self.ledger.prepare(self.thread, self.record)
        if not mine and (ended := await self._ended(held)) is not None:
            return ended
        if mine:
            return await self._not_executed(1, "executed", f"Error: it was not run: {reason}")
        claims = await self.ledger.claims(self.thread, held)
        if (ended := await self._wait_out(claims)) is not None:
            return ended
        if self.deed.look is None:
            return await self._review(claims[-1].attempt, reason)
        hold = await self._claim(claims[-1].attempt + 1)
        return await self._as_found(hold, reason) if isinstance(hold, Hold) else hold

    async def close(self, resolution: Resolution) -> Ended:
        """A person's word on an operation that is not to be made any more, whatever became of it: a reset left it."""
        held, _ = await self.ledger.prepare(self.thread, self.record)
        if (ended := await self._ended(held)) is not None:
            return ended
        if resolution.outcome != "not_happened":
            return await self._as_told(resolution)
        claims, said = await self.ledger.claims(self.thread, held), f"{resolution.by} said that it did not happen"
        if claims[-1].refused:
            return await self._end("NOT_EXECUTED", "person", f"{said}.", len(claims) - 1, error=True, by=resolution.by)
        if not await self._counts(resolution, claims):
            return await self.doubt("a later attempt may have acted")
        if (ended := await self._wait_out(claims)) is not None:
            return ended
        return await self._not_executed(claims[-1].attempt, "person", f"{said}. It is not made any more.")

    async def _ended(self, held: Prepared) -> Ended | None:
        """The outcome on record; `taken` for another request under this id, and for an effect that was undone."""
        if held.request_digest != self.record.request_digest:
            return "taken"
        found = await self.ledger.standing(self.thread, self.operation)
        return "taken" if found.state == "COMPENSATED" else found.outcome

    async def _recover(self, held: Prepared, resolution: Resolution | None) -> Ended:
        claims = await self.ledger.claims(self.thread, held)
        if claims[-1].refused:
            text = "Error: an earlier attempt was refused, and nothing happened"
            return await self._end("NOT_EXECUTED", "executed", text, len(claims) - 1, error=True)
        told = resolution is not None and await self._counts(resolution, claims)
        repeats = not told and held.effect == self.record.effect == "idempotent" and self._key_is_valid(held)
        if not repeats and (ended := await self._wait_out(claims)) is not None:
            return ended
        word = resolution.code if resolution is not None and told else None
        hold = await self._claim(claims[-1].attempt + 1, word)
        if not isinstance(hold, Hold):
            return hold
        if self.deed.look is not None and (found := await self._look(hold, told)) is not None:
            return found
        if told or self.deed.look is not None:
            return await self._execute(hold, certain=not repeats)
        if repeats or self.on_unknown == "retry":
            return await self._execute(hold, certain=False)
        return await self._unknown(hold, "an earlier attempt ended without saying whether it acted")

    async def _counts(self, resolution: Resolution, claims: list[Claim]) -> bool:
        """Whether a word that it did not happen lets this attempt act: it is about the claims that stood when the
        person was asked, and it is used up by the first claim that is made on it."""
        asked = (await self.ledger.standing(self.thread, self.operation)).review
        fits = asked is not None and asked.claim == claims[-1].attempt
        return fits and all(claim.word != resolution.code for claim in claims)

    async def _execute(self, hold: Hold, certain: bool) -> Ended:
        """`certain`: when the tool refuses, nothing happened, since no earlier attempt can have acted unseen."""
        if self.stopped():
            if not certain or self.record.undoes is not None:  # an undoing has one name: its end would be for good
                raise Stopped
            return await self._not_executed(hold.number, "executed", "Error: cancelled before it was run")
        if self.clock() - hold.since > FRESH:
            fresh = await self._claim(hold.number + 1)
            if not isinstance(fresh, Hold):
                return fresh
            hold = fresh
            if self.clock() - hold.since > FRESH:
                raise Unknown(f"the store is too slow to act under a claim on {self.operation}")
        try:
            value = await self.deed.act()
        except ToolError as error:
            if certain:
                return await self._not_executed(hold.number, "executed", f"Error: {error}")
            return await self._refused(hold, error)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises
            return await self._failed(hold, error)
        return await self._happened(hold, "executed", value)

    async def _refused(self, hold: Hold, error: ToolError) -> Ended:
        """This attempt was refused, but an earlier one may have acted, or may still: that is not a no."""
        if self.deed.look is None:
            said = f"an earlier attempt may have acted; a later one was refused: {error}"
            return await self._settled_review(hold, said)
        return await self._gone(hold, str(error))

    async def _failed(self, hold: Hold, error: Exception) -> Ended:
        """The tool broke, so whether it acted is unknown: look if one can, let the server try again if that is safe."""
        said = str(error) if isinstance(error, Told) else f"the tool failed with {type(error).__name__}"
        if self.deed.look is not None:
            if (found := await self._look(hold)) is not None:
                return found
            if not self.last:
                raise error
            return await self._gone(hold, f"{said}, at the last attempt")
        if self.record.effect != "idempotent" and self.on_unknown != "retry":
            return await self._unknown(hold, said)
        if not self.last:
            raise error
        return await self._settled_review(hold, said)

    async def _settled_review(self, hold: Hold, said: str) -> Ended:
        """Attempts with one key do not wait for each other: a person is asked when none can act behind the answer."""
        if (ended := await self._all_over()) is not None:
            return ended
        return await self._review(hold.number, said)

    async def _gone(self, hold: Hold, said: str) -> Ended:
        """Nothing more is tried. When no attempt can act any more, a last look decides."""
        if (ended := await self._all_over()) is not None:
            return ended
        return await self._as_found(hold, said)

    async def _all_over(self) -> Ended | None:
        """Waits until this claim's lease has ended and every other one: a deploy may have shortened them since."""
        return await self._wait_out((await self.ledger.standing(self.thread, self.operation)).claims)

    async def _as_found(self, hold: Hold, said: str) -> Ended:
        found = await self._look(hold)
        if found is not None:
            return found
        text = f"Error: {said}. A look-up says that it did not happen."
        return await self._not_executed(hold.number, "found", text)

    async def _look(self, hold: Hold, told: bool = False) -> Ended | None:
        """What the outside world says; None when it surely did not happen."""
        assert self.deed.look is not None
        try:
            found = await self.deed.look()
        except Told as told_by_it:  # it has looked, and nobody but a person can tell
            return None if told else await self._review(hold.number, str(told_by_it))
        except Exception as error:  # it cannot tell: the same question later, and at the end to a person
            if told:
                return None  # a person has said that it did not happen
            if not self.last:
                raise
            return await self._review(hold.number, f"the look-up failed with {type(error).__name__}")
        return None if found is None else await self._happened(hold, "found", found)

    async def _unknown(self, hold: Hold, reason: str) -> Ended:
        if self.on_unknown == "skip":
            text = f"Not known whether {self.record.tool} happened ({reason}). By its rule it was not tried again."
            return await self._end("SKIPPED", "rule", text, hold.number)
        return await self._review(hold.number, reason)

    async def _wait_out(self, claims: list[Claim]) -> Ended | None:
        """An earlier attempt may still act. Clocks of other machines say nothing, so its whole lease is waited here,
        on this machine's own, from the moment it was seen; an outcome that appears meanwhile ends the wait. What
        earlier attempts of this activity have waited counts: a lease may be longer than one of them may last."""
        while (left := max(claim.lease - self._age(claim) for claim in claims)) > 0:
            if self.stopped():
                raise Stopped
            await self.sleep(min(left, 1.0))
            if (ended := await self.ledger.outcome(self.thread, self.operation)) is not None:
                return ended
        return None

    def _key_is_valid(self, held: Prepared) -> bool:
        """Whether the other side still honours the key when this attempt has run its whole time."""
        age = datetime.now(UTC) - datetime.fromisoformat(held.prepared_at)
        return age + timedelta(seconds=self._lease) < timedelta(seconds=held.key_valid)
