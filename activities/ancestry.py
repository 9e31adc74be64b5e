"""What was done before on paths that a run does not see: before a reset, in an earlier start, in a fork's parent.

Both repeating such an effect and leaving it out in silence are wrong, so a call is held against them when it is judged.
Each request that is judged is noted under its digest, before anything is prepared: no crash can lose a note.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.canonical import preview
from activities.entries import Entries
from activities.ledger import Ledger, operation_name, shown
from activities.origin import find_past
from activities.store import Store
from workflows.keys import request_key, requests_folder
from workflows.records import EffectRecord, TurnRequest

NOTHING_HAPPENED = ("NOT_EXECUTED", "COMPENSATED", "ABSENT")
LISTED = 50


@dataclass(frozen=True)
class Earlier:
    """An equal request that was made before: its record, and the thread that it belongs to."""

    thread: str
    record: EffectRecord


class Ancestry:
    """The ledger, seen from a run that may have a past."""

    def __init__(self, store: Store, ledger: Ledger, entries: Entries) -> None:
        self._store, self._ledger, self._entries = store, ledger, entries

    async def note(self, thread: str, operation_id: str, request_digest: str) -> None:
        """Notes that this operation is to make this request."""
        await self._store.put_new(request_key(thread, operation_id, request_digest), b"{}")

    async def abandoned(self, request: TurnRequest) -> list[EffectRecord]:
        """The effects of paths that were left: those the run knows, and those whose number it has not reached.

        What did not happen, or was undone, is left out. The oldest come first.
        """
        if not request.branched:
            return []
        known = set(request.abandoned)
        for name in await self._ledger.names(request.thread):
            if not name.endswith(":undo") and _beyond(name, request.numbers):
                known.add(f"{request.thread}:{name}")
        views = [await self._view(request.thread, operation) for operation in sorted(known)]
        left = [view for view in views if view is not None and view.status not in NOTHING_HAPPENED]
        return sorted(left, key=lambda view: view.prepared_at or "")

    async def _view(self, thread: str, operation: str) -> EffectRecord | None:
        """An operation of this thread, or of one that it was forked from, which may be gone."""
        made = operation.partition(":")[0]
        found = await self._ledger.view(made, operation)
        if found is not None or made == thread:
            return found
        past = await find_past(self._store, thread)
        return next((each.record for each in past if each.record.operation_id == operation), None)

    async def equal(
        self, request: TurnRequest, request_digest: str, abandoned: Mapping[str, Any], elsewhere: bool = True
    ) -> Earlier | None:
        """An equal request that was made in the ancestry and may have happened; one that surely did comes first.
        `elsewhere`: in other threads too, not only before a reset of this one."""
        if request.repeat == "run":
            return None
        own = request.thread.rpartition(".")[0]
        found: Earlier | None = None
        for workflow_id in dict.fromkeys([own, *(thread.rpartition(".")[0] for thread in request.ancestry)]):
            top = requests_folder(workflow_id, request_digest)
            for key in sorted(await self._store.keys(top)):
                start, _, name = key.removeprefix(f"{top}/").partition(".")
                thread = f"{workflow_id}.{start}"
                operation = f"{thread}:{operation_name(name)}"
                if thread == request.thread and operation not in abandoned:
                    continue  # on this very path: the model's own repetition
                if thread != request.thread and not elsewhere:
                    continue
                if workflow_id != own and thread not in request.ancestry:
                    continue
                standing = await self._ledger.standing(thread, operation)
                held = standing.prepared
                if held is None or held.request_digest != request_digest or standing.state in NOTHING_HAPPENED:
                    continue
                found = Earlier(thread, shown(held, standing))
                if standing.state == "COMMITTED":
                    return found
        return found or (await self._kept(request, request_digest) if elsewhere else None)

    async def beside(self, request: TurnRequest, tool: str) -> list[EffectRecord]:
        """What the run that this one was forked from made with a tool, as far as the context does not hold it: a model
        never words the same deed twice."""
        if not request.ancestry or request.repeat == "run":
            return []
        known = await find_past(self._store, request.thread)
        past = [each for each in known if each.after and each.record.tool == tool]
        views = [await self._ledger.view(each.thread, each.record.operation_id) or each.record for each in past]
        return [view for view in views if view.status not in NOTHING_HAPPENED]

    async def _kept(self, request: TurnRequest, request_digest: str) -> Earlier | None:
        """An equal request out of what a fork keeps of its source, for one that is gone."""
        for each in await find_past(self._store, request.thread) if request.ancestry else []:
            if each.request_digest != request_digest:
                continue
            now = await self._ledger.view(each.thread, each.record.operation_id) or each.record
            if now.status not in NOTHING_HAPPENED:
                return Earlier(each.thread, now)
        return None

    async def result(self, earlier: Earlier) -> str | None:
        """The recorded result of an equal request; None unless it surely happened."""
        outcome = await self._ledger.outcome(earlier.thread, earlier.record.operation_id)
        if outcome is None or outcome.status != "COMMITTED":
            return None
        body = await self._entries.get(earlier.thread, outcome.answer.sha256)
        return str(body.get("result", body["text"]))


def fact(new: list[EffectRecord]) -> str:
    """What the model is told of effects that it does not remember."""
    lines = [f"- {line(effect)}" for effect in new[-LISTED:]]
    return (
        "[system] This run was set back to an earlier point. After that point these effects were made or begun; they "
        "are in the world, although the conversation above does not show them:\n" + "\n".join(lines) + "\n"
        "Do not make them again in other words. The same step with the same arguments gets its recorded result; any "
        "other call of these tools asks a person first."
    )


def line(effect: EffectRecord) -> str:
    """An effect in one line, for people and models."""
    request = effect.canonical_request
    arguments = request.get("arguments") if isinstance(request, dict) else request
    outside = f", outside id {effect.external_id}" if effect.external_id else ""
    return preview(f"{effect.operation_id} ({effect.status}{outside}): {effect.tool} {arguments}", 400)


def brief(effect: EffectRecord) -> EffectRecord:
    """The record as history carries it in a list."""
    return effect.model_copy(
        update={
            "abandoned": True,
            "canonical_request": preview(str(effect.canonical_request), 300),
            "result": preview(str(effect.result), 100) if effect.result is not None else None,
        }
    )


def _beyond(name: str, numbers: Mapping[str, int]) -> bool:
    tool, _, number = name.rpartition(":")
    return int(number.partition("~")[0]) > numbers.get(tool, 0)
