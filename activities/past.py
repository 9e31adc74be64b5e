"""The effects that a source made, told apart by whether a fork's context holds them."""

import asyncio
from collections.abc import Sequence

from activities.ancestry import NOTHING_HAPPENED
from activities.checkpoints import Checkpoint
from activities.ledger import Ledger, shown
from activities.origin import PastEffect, find_past
from activities.store import Store
from workflows.records import Call


def operations(records: Sequence[Checkpoint], settled: Sequence[str]) -> set[str]:
    """The operations whose outcome the context holds: those of all turns, of the last one those that are settled."""
    found = set[str]()
    for index, record in enumerate(records):
        for call in (record.outputs.turn or {}).get("calls", []):
            made = Call.model_validate(call)
            if made.operation_id is not None and (index < len(records) - 1 or made.id in settled):
                found.add(made.operation_id)
    return found


async def past_effects(store: Store, ledger: Ledger, thread: str, held: set[str]) -> list[PastEffect]:
    """What the source did or began, with what it knows of its own past, the oldest first. What surely did not happen,
    or was undone, is left out."""
    names = await ledger.names(thread)
    standings = await asyncio.gather(*(ledger.standing(thread, f"{thread}:{name}") for name in names))
    found = list(await find_past(store, thread))
    for standing in standings:
        if standing.prepared is None or standing.prepared.undoes or standing.state in NOTHING_HAPPENED:
            continue
        record, request = shown(standing.prepared, standing), standing.prepared.request_digest
        after = record.operation_id.partition("~")[0] not in held
        found.append(PastEffect(thread=thread, request_digest=request, after=after, record=record))
    return sorted(found, key=lambda effect: effect.record.prepared_at or "")
