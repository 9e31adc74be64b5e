"""The ledger of effects: intent on disk before the effect, outcome after it, and never a guess in between.

Every record is written with put-if-absent, so of racing attempts exactly one wins each step:

    prepared.json      the intent, with the claim of the first attempt
    attempts/<k>.json  the claim of attempt k, from 2 on; its lease outlives the attempt's deadline
    reviews/<k>.json   a person is asked what became of attempt k and those before it
    outcome.json       the end: one key for all end states, so only one of them can be

What may follow what is the table `NEXT` in `effect_records`. A compensation is an operation of its own, `<id>:undo`;
once it has committed, the operation that it undid is COMPENSATED.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from activities.canonical import preview
from activities.effect_records import SCHEMA, Claim, Outcome, Prepared, Review, State, Written, allow
from activities.errors import CheckpointDamaged, IncompatiblePayload, StoreUnavailable
from activities.store import Store
from workflows.keys import effect_folder, folder, undo_id
from workflows.records import EffectRecord

W = TypeVar("W", bound=Written)
Own = TypeVar("Own", Prepared, Outcome)

RETRIES = 3
RETRY_SECONDS = 0.5


@dataclass(frozen=True)
class Standing:
    """All that is on record of one operation."""

    prepared: Prepared | None
    outcome: Outcome | None
    claims: list[Claim]
    review: Review | None
    undone: bool

    @property
    def state(self) -> State:
        """Where the operation stands."""
        if self.outcome is not None:
            return "COMPENSATED" if self.undone and self.outcome.status == "COMMITTED" else self.outcome.status
        if self.prepared is None:
            return "ABSENT"
        return "PREPARED" if self.review is None else "IN_REVIEW"


class Ledger:
    """The effects of all threads, over one store."""

    def __init__(self, store: Store, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._store, self._sleep = store, sleep

    async def prepare(self, thread: str, record: Prepared) -> tuple[Prepared, bool]:
        """Writes the intent, with this attempt's claim. Gives what stands there, and whether it is this attempt's."""
        key = f"{effect_folder(thread, record.operation_id)}/prepared.json"
        if await self._put(key, record):
            return record, True
        held = await self.prepared(thread, record.operation_id)
        if held is None:
            raise IncompatiblePayload(f"{key} was there and is gone")
        return held, held.claim.token == record.claim.token

    async def prepared(self, thread: str, operation: str) -> Prepared | None:
        """The intent of an operation, if there is one."""
        return await self._own(thread, operation, "prepared", Prepared)

    async def claims(self, thread: str, held: Prepared) -> list[Claim]:
        """All claims on an operation, by attempt."""
        found = [held.claim]
        while (claim := await self._claim(thread, held.operation_id, found[-1].attempt + 1)) is not None:
            found.append(claim)
        return found

    async def claim(self, thread: str, operation: str, claim: Claim) -> bool:
        """Takes the next attempt; False when another took it first.

        Raises IllegalTransition for an operation that has ended or was never prepared.
        """
        allow((await self.standing(thread, operation)).state, "PREPARED", operation)
        if await self._put(f"{effect_folder(thread, operation)}/attempts/{claim.attempt}.json", claim):
            return True
        held = await self._claim(thread, operation, claim.attempt)
        return held is not None and held.token == claim.token

    async def outcome(self, thread: str, operation: str) -> Outcome | None:
        """How an operation ended; None while it has not."""
        return await self._own(thread, operation, "outcome", Outcome)

    async def finish(self, thread: str, outcome: Outcome) -> Outcome:
        """Writes an end and gives the one that stands, which is the first that was written.

        Raises IllegalTransition for an operation that was never prepared.
        """
        prepared = await self.prepared(thread, outcome.operation_id)
        allow("ABSENT" if prepared is None else "PREPARED", outcome.status, outcome.operation_id)
        key = f"{effect_folder(thread, outcome.operation_id)}/outcome.json"
        if await self._put(key, outcome):
            return outcome
        held = await self.outcome(thread, outcome.operation_id)
        if held is None:
            raise IncompatiblePayload(f"{key} was there and is gone")
        return held

    async def review(self, thread: str, operation: str, reason: str, since: str) -> Review:
        """Marks an operation as one that a person is asked about; the mark that stands when there is one already.

        Raises IllegalTransition when it has ended or was never prepared.
        """
        standing = await self.standing(thread, operation)
        if standing.review is not None and standing.outcome is None:
            return standing.review
        allow(standing.state, "IN_REVIEW", operation)
        review = Review(reason=reason, since=since, claim=standing.claims[-1].attempt)
        await self._put(f"{effect_folder(thread, operation)}/reviews/{review.claim}.json", review)
        return review

    async def state(self, thread: str, operation: str) -> State:
        """Where an operation stands."""
        return (await self.standing(thread, operation)).state

    async def standing(self, thread: str, operation: str) -> Standing:
        """All that is on record of an operation."""
        top = effect_folder(thread, operation)
        prepared, outcome = await self.prepared(thread, operation), await self.outcome(thread, operation)
        if prepared is None:
            return Standing(None, outcome, [], None, False)
        claims = await self.claims(thread, prepared)
        review, undo = None, None
        if outcome is None:
            review = await self._read(f"{top}/reviews/{claims[-1].attempt}.json", Review)
        elif outcome.status == "COMMITTED" and prepared.undoes is None:
            undo = await self.outcome(thread, undo_id(operation))
        return Standing(prepared, outcome, claims, review, undo is not None and undo.status == "COMMITTED")

    async def view(self, thread: str, operation: str) -> EffectRecord | None:
        """An operation as queries show it; None for one that was never prepared."""
        found = await self.standing(thread, operation)
        return None if found.prepared is None else shown(found.prepared, found)

    async def standings(self, thread: str, only: Collection[str] | None = None) -> list[Standing]:
        """Of every operation of a thread, or of these, all that is on record, by the time of its intent."""
        names = [name for name in await self.names(thread) if only is None or f"{thread}:{name}" in only]
        found = await asyncio.gather(*(self.standing(thread, f"{thread}:{name}") for name in names))
        return sorted(found, key=lambda each: each.prepared.prepared_at if each.prepared else "")

    async def everything(self, thread: str) -> list[EffectRecord]:
        """Every operation of a thread as queries show it, by the time of its intent."""
        return [shown(each.prepared, each) for each in await self.standings(thread) if each.prepared is not None]

    async def names(self, thread: str) -> list[str]:
        """What every prepared operation of a thread is called, without the thread: `<tool>:<number>` and the like."""
        top, suffix = f"{folder(thread)}/effects/", "/prepared.json"
        keys = await self._store.keys(top.rstrip("/"))
        names = [key.removeprefix(top).removesuffix(suffix) for key in keys if key.endswith(suffix)]
        return [operation_name(name) for name in names]

    async def _claim(self, thread: str, operation: str, attempt: int) -> Claim | None:
        return await self._read(f"{effect_folder(thread, operation)}/attempts/{attempt}.json", Claim)

    async def _put(self, key: str, record: Written) -> bool:
        """put-if-absent over a short fault of the store: who wrote what stands there is told by its content."""
        data = record.model_dump_json(by_alias=True).encode("utf-8")
        for left in range(RETRIES, -1, -1):
            try:
                return await self._store.put_new(key, data) or await self._store.get(key) == data
            except StoreUnavailable:
                if left == 0:
                    raise
                await self._sleep(RETRY_SECONDS)
        raise AssertionError("unreachable")

    async def _own(self, thread: str, operation: str, name: str, model: type[Own]) -> Own | None:
        """A record that says whose it is. Another operation's, restored to the wrong place, is none of this one."""
        key = f"{effect_folder(thread, operation)}/{name}.json"
        found = await self._read(key, model)
        if found is not None and found.operation_id != operation:
            raise CheckpointDamaged(f"{key} is the record of {found.operation_id}, not of {operation}")
        return found

    async def _read(self, key: str, model: type[W]) -> W | None:
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            found = model.model_validate_json(data)
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            if fault["type"] == "json_invalid":
                raise CheckpointDamaged(f"{key} is damaged: {fault['msg']}") from None
            field = ".".join(str(part) for part in fault["loc"])
            raise IncompatiblePayload(f"{key} is no {model.__name__}: field `{field}`: {fault['msg']}") from None
        if found.schema_version != SCHEMA:
            raise IncompatiblePayload(f"{key} has schema {found.schema_version}; this release reads {SCHEMA}")
        return found


def operation_name(folder_name: str) -> str:
    """`send_4`, `send_4~b1` or `send_4_undo`, the name of a folder, as the end of an operation id."""
    undo = folder_name.endswith("_undo")
    tool, _, number = folder_name.removesuffix("_undo").rpartition("_")
    return f"{tool}:{number}" + (":undo" if undo else "")


def shown(prepared: Prepared, found: Standing) -> EffectRecord:
    """An operation as queries show it."""
    outcome = found.outcome
    return EffectRecord(
        operation_id=prepared.operation_id,
        tool=prepared.tool,
        effect=prepared.effect,
        status=found.state,
        canonical_request=_short(prepared.canonical_request),
        fingerprint=prepared.fingerprint,
        idempotency_key=prepared.idempotency_key,
        external_id=outcome.external_id if outcome else None,
        result=outcome.answer.preview if outcome else None,
        attempts=sum(not claim.refused for claim in found.claims),
        prepared_at=prepared.prepared_at,
        committed_at=outcome.committed_at if outcome else None,
        approved_by=prepared.approved_by,
        in_doubt=found.review.reason if found.review else None,
    )


def _short(request: dict[str, Any]) -> Any:
    arguments = {k: preview(v) if isinstance(v, str) else v for k, v in request.get("arguments", {}).items()}
    short = {**request, "arguments": arguments}
    return short if len(str(short)) <= 2000 else preview(str(short), 500)
