"""The effects that a source made, told apart by whether a fork's context holds them."""

import asyncio
from collections.abc import Collection, Sequence

from activities.ancestry import NOTHING_HAPPENED
from activities.checkpoints import Checkpoint
from activities.effect_records import Prepared
from activities.ledger import Ledger, Standing, shown
from activities.origin import PastEffect, find_past
from activities.store import Store
from workflows.keys import branched_id
from workflows.records import Call


class Known:
    """What a fork's context holds of the effects on its path. `records` is the path, `settled` are the answers of its
    last turn (digest, or None for a text, by call), `left` the calls that edits took out of the context or
    answered in other words, `untold` the turns whose answers a handoff summed up before a checkpoint had named them."""

    def __init__(
        self,
        records: Sequence[Checkpoint],
        settled: dict[str, str | None],
        left: Collection[str] = (),
        untold: Collection[int] = (),
    ) -> None:
        self._branches = {record.branch for record in records}
        self._answers: set[str | None] = {digest for record in records for digest in record.inputs.entries}
        self._answers |= set(settled.values())
        self._calls = dict[str, tuple[str, str | None]]()
        self._unsaid = set[str]()
        for record in records:
            for value in (record.outputs.turn or {}).get("calls", []):
                call = Call.model_validate(value)
                if call.id in left or (record is records[-1] and call.id not in settled):
                    continue
                self._calls[call.id] = record.thread, call.operation_id
                if record.sequence in untold or call.wants is not None:  # a sub-agent answers by its own end
                    self._unsaid.add(call.id)

    def holds(self, thread: str, held: Prepared, standing: Standing, others: Collection[str]) -> bool:
        """Whether the context holds how this operation of the source ended. `others`: all operations of its call."""
        outcome = standing.outcome
        if held.call is None:  # a record of an early release
            return held.operation_id in {operation for _, operation in self._calls.values()}
        if held.call not in self._calls or outcome is None:
            return False
        if held.call not in self._unsaid and outcome.answer.sha256 not in self._answers:
            return False  # its call was answered otherwise: a person denied it, or an edit gave other words
        by, named = self._calls[held.call]
        return by != thread or held.operation_id == self._ran(named, others)

    def remembers(self, effect: PastEffect) -> bool:
        """The same of an effect that the source's own context began with."""
        if effect.call is not None:
            return effect.call in self._calls
        return effect.record.operation_id in {operation for _, operation in self._calls.values()}

    def _ran(self, named: str | None, others: Collection[str]) -> str | None:
        """The operation that a call was run as: its number may have been taken when it came to that."""
        renamed = {branched_id(named, branch) for branch in self._branches} if named else set[str]()
        return next((each for each in others if each in renamed), named)


async def past_effects(
    store: Store, ledger: Ledger, thread: str, known: Known, *, undone: bool = False
) -> list[PastEffect]:
    """What the source did or began, with what it knows of its own past, the oldest first. What surely did not happen is
    left out, and so is what was undone, unless that is what is asked for: then it is the rest that is left out.

    What the source's own context did not hold, no fork of it does.
    """
    names = await ledger.names(thread)
    standings = await asyncio.gather(*(ledger.standing(thread, f"{thread}:{name}") for name in names))
    own = [(each.prepared, each) for each in standings if each.prepared is not None and not each.prepared.undoes]
    found = []
    for each in await find_past(store, thread):
        now = await ledger.view(each.thread, each.record.operation_id) or each.record
        after = each.after or not known.remembers(each)
        found.append(each.model_copy(update={"after": after, "record": now}))
    for held, standing in own:
        others = [each.operation_id for each, _ in own if each.call == held.call]
        found.append(
            PastEffect(
                thread=thread,
                request_digest=held.request_digest,
                after=not known.holds(thread, held, standing, others),
                record=shown(held, standing),
                call=held.call,
            )
        )
    wanted = [each for each in found if (each.record.status == "COMPENSATED" if undone else _stands(each))]
    return sorted(wanted, key=lambda effect: effect.record.prepared_at or "")


def _stands(effect: PastEffect) -> bool:
    return effect.record.status not in NOTHING_HAPPENED
