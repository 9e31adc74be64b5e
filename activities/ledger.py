"""The ledger of effects: intent on disk before the effect, outcome after it, and never a guess in between.

Every record is written with put-if-absent, so of racing attempts exactly one wins each step:

    prepared.json      the intent, with the claim of the first attempt
    attempts/<k>.json  the claim of attempt k, from 2 on; its lease outlives the attempt's deadline
    review.json        set while a person is asked
    outcome.json       the end: one key for all end states, so only one of them can be

What may follow what is the table `NEXT`.
"""

import asyncio
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.canonical import preview
from activities.errors import IncompatiblePayload
from activities.store import Store
from workflows.keys import effect_folder, folder
from workflows.records import Effect, EffectRecord, Ref

SCHEMA = 1
State = Literal["ABSENT", "PREPARED", "IN_REVIEW", "COMMITTED", "NOT_EXECUTED", "SKIPPED"]
End = Literal["COMMITTED", "NOT_EXECUTED", "SKIPPED"]

NEXT: dict[State, frozenset[State]] = {
    "ABSENT": frozenset({"PREPARED"}),
    "PREPARED": frozenset({"IN_REVIEW", "COMMITTED", "NOT_EXECUTED", "SKIPPED"}),
    "IN_REVIEW": frozenset({"IN_REVIEW", "COMMITTED", "NOT_EXECUTED", "SKIPPED"}),
    "COMMITTED": frozenset(),
    "NOT_EXECUTED": frozenset(),
    "SKIPPED": frozenset(),
}


class IllegalTransition(Exception):
    """A step that the table does not allow. Nothing was written."""


class _Written(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = Field(SCHEMA, alias="schema")


class Claim(_Written):
    """An attempt's right to act. `lease`: for how many seconds after the claim is seen it may still be acting."""

    attempt: int
    token: str
    lease: float
    claimed_at: str


class Prepared(_Written):
    """The intent: exactly what is to be done, and under which key."""

    operation_id: str
    tool: str
    effect: Effect
    canonical_request: dict[str, Any]
    request_digest: str
    fingerprint: str = Field(min_length=1)
    idempotency_key: str
    key_valid: float
    approved_by: str | None = None
    prepared_at: str
    claim: Claim


class Outcome(_Written):
    """How an operation ended, and how that is known: `executed` by an attempt, `found` by a look-up, said by a
    `person`, or decided by the author's `rule` for unknown outcomes. `answer` is the body that the model gets."""

    operation_id: str
    status: End
    how: Literal["executed", "found", "person", "rule"]
    answer: Ref
    error: bool = False
    external_id: str | None = None
    by: str | None = None
    attempts: int = 1
    committed_at: str


class Review(_Written):
    """Why a person is asked."""

    reason: str
    since: str


W = TypeVar("W", bound=_Written)


class Ledger:
    """The effects of all threads, over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def prepare(self, thread: str, record: Prepared) -> tuple[Prepared, bool]:
        """Writes the intent, with this attempt's claim. Gives what stands there, and whether it is this attempt's."""
        key = f"{effect_folder(thread, record.operation_id)}/prepared.json"
        if await self._store.put_new(key, _bytes(record)):
            return record, True
        held = await self.prepared(thread, record.operation_id)
        if held is None:
            raise IncompatiblePayload(f"{key} was there and is gone")
        return held, held.claim.token == record.claim.token

    async def prepared(self, thread: str, operation: str) -> Prepared | None:
        """The intent of an operation, if there is one."""
        return await self._read(f"{effect_folder(thread, operation)}/prepared.json", Prepared)

    async def claims(self, thread: str, held: Prepared) -> list[Claim]:
        """All claims on an operation, by attempt."""
        found = [held.claim]
        while True:
            number = found[-1].attempt + 1
            key = f"{effect_folder(thread, held.operation_id)}/attempts/{number}.json"
            claim = await self._read(key, Claim)
            if claim is None:
                return found
            found.append(claim)

    async def claim(self, thread: str, operation: str, claim: Claim) -> bool:
        """Takes the next attempt; False when another took it first."""
        key = f"{effect_folder(thread, operation)}/attempts/{claim.attempt}.json"
        if await self._store.put_new(key, _bytes(claim)):
            return True
        held = await self._read(key, Claim)
        return held is not None and held.token == claim.token

    async def outcome(self, thread: str, operation: str) -> Outcome | None:
        """How an operation ended; None while it has not."""
        return await self._read(f"{effect_folder(thread, operation)}/outcome.json", Outcome)

    async def finish(self, thread: str, outcome: Outcome) -> Outcome:
        """Writes an end and gives the one that stands, which is the first that was written.

        Raises IllegalTransition for an operation that was never prepared.
        """
        state = await self.state(thread, outcome.operation_id)
        if state in ("COMMITTED", "NOT_EXECUTED", "SKIPPED"):
            held = await self.outcome(thread, outcome.operation_id)
            assert held is not None
            return held
        _allow(state, outcome.status, outcome.operation_id)
        key = f"{effect_folder(thread, outcome.operation_id)}/outcome.json"
        if await self._store.put_new(key, _bytes(outcome)):
            return outcome
        held = await self.outcome(thread, outcome.operation_id)
        if held is None:
            raise IncompatiblePayload(f"{key} was there and is gone")
        return held

    async def review(self, thread: str, operation: str, review: Review) -> None:
        """Marks an operation as one that a person is asked about. Raises IllegalTransition when it has ended."""
        _allow(await self.state(thread, operation), "IN_REVIEW", operation)
        await self._store.put(f"{effect_folder(thread, operation)}/review.json", _bytes(review))

    async def state(self, thread: str, operation: str) -> State:
        """Where an operation stands."""
        outcome, prepared, review = await self._all(thread, operation)
        return _state(outcome, prepared, review)

    async def view(self, thread: str, operation: str) -> EffectRecord | None:
        """An operation as queries show it; None for one that was never prepared."""
        outcome, prepared, review = await self._all(thread, operation)
        if prepared is None:
            return None
        return EffectRecord(
            operation_id=operation,
            tool=prepared.tool,
            effect=prepared.effect,
            status=_state(outcome, prepared, review),
            canonical_request=_short(prepared.canonical_request),
            fingerprint=prepared.fingerprint,
            idempotency_key=prepared.idempotency_key,
            external_id=outcome.external_id if outcome else None,
            result=outcome.answer.preview if outcome else None,
            attempts=outcome.attempts if outcome else len(await self.claims(thread, prepared)),
            prepared_at=prepared.prepared_at,
            committed_at=outcome.committed_at if outcome else None,
            approved_by=prepared.approved_by,
        )

    async def everything(self, thread: str) -> list[EffectRecord]:
        """Every operation of a thread, by the time of its intent."""
        suffix = "/prepared.json"
        keys = [key for key in await self._store.keys(f"{folder(thread)}/effects") if key.endswith(suffix)]
        held = await asyncio.gather(*(self._read(key, Prepared) for key in keys))
        views = await asyncio.gather(*(self.view(thread, one.operation_id) for one in held if one is not None))
        return sorted((view for view in views if view is not None), key=lambda view: view.prepared_at or "")

    async def _all(self, thread: str, operation: str) -> tuple[Outcome | None, Prepared | None, Review | None]:
        top = effect_folder(thread, operation)
        return await asyncio.gather(
            self._read(f"{top}/outcome.json", Outcome),
            self._read(f"{top}/prepared.json", Prepared),
            self._read(f"{top}/review.json", Review),
        )

    async def _read(self, key: str, model: type[W]) -> W | None:
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            found = model.model_validate_json(data)
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            field = ".".join(str(part) for part in fault["loc"])
            raise IncompatiblePayload(f"{key} is no {model.__name__}: field `{field}`: {fault['msg']}") from None
        if found.schema_version != SCHEMA:
            raise IncompatiblePayload(f"{key} has schema {found.schema_version}; this release reads {SCHEMA}")
        return found


def _state(outcome: Outcome | None, prepared: Prepared | None, review: Review | None) -> State:
    if outcome is not None:
        return outcome.status
    if prepared is None:
        return "ABSENT"
    return "PREPARED" if review is None else "IN_REVIEW"


def _allow(state: State, wanted: State, operation: str) -> None:
    if wanted not in NEXT[state]:
        raise IllegalTransition(f"{operation}: {state} -> {wanted} is not a step")


def _bytes(record: _Written) -> bytes:
    return record.model_dump_json(by_alias=True).encode("utf-8")


def _short(request: dict[str, Any]) -> Any:
    arguments = {k: preview(v) if isinstance(v, str) else v for k, v in request.get("arguments", {}).items()}
    shown = {**request, "arguments": arguments}
    return shown if len(str(shown)) <= 2000 else preview(str(shown), 500)
