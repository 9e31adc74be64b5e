"""The ledger's records, and the one table that says what may follow what.

They are promises to operations that are in doubt today and looked at by a later release: a field may be added with a
default, never renamed, retyped or removed.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workflows.records import Effect, Ref

SCHEMA = 1
State = Literal["ABSENT", "PREPARED", "IN_REVIEW", "COMMITTED", "NOT_EXECUTED", "SKIPPED", "COMPENSATED"]
End = Literal["COMMITTED", "NOT_EXECUTED", "SKIPPED"]
How = Literal["executed", "found", "person", "rule"]
IN_DOUBT: tuple[State, ...] = ("PREPARED", "IN_REVIEW")
ENDS: tuple[End, ...] = ("COMMITTED", "NOT_EXECUTED", "SKIPPED")

NEXT: dict[State, frozenset[State]] = {
    "ABSENT": frozenset({"PREPARED"}),
    "PREPARED": frozenset({"PREPARED", "IN_REVIEW", *ENDS}),  # to itself: another attempt claims it
    "IN_REVIEW": frozenset({"PREPARED", *ENDS}),  # back: a person said that it did not happen, and to run it
    "COMMITTED": frozenset({"COMPENSATED"}),
    "NOT_EXECUTED": frozenset(),
    "SKIPPED": frozenset(),
    "COMPENSATED": frozenset(),
}


class IllegalTransition(Exception):
    """A step that the table does not allow. Nothing was written."""


def allow(state: State, wanted: State, operation: str) -> None:
    """Raises IllegalTransition unless `wanted` may follow `state`."""
    if wanted not in NEXT[state]:
        raise IllegalTransition(f"{operation}: {state} -> {wanted} is not a step")


class Written(BaseModel):
    """What every record has."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = Field(SCHEMA, alias="schema")


class Claim(Written):
    """An attempt's right to act. `lease`: for how many seconds after the claim is seen it may still be acting.
    `word`: the code of the review whose "it did not happen, run it" this claim used up. `refused`: it is no right to
    act but the end of all of them: nothing happened, and after it nobody may make it happen."""

    attempt: int
    token: str
    lease: float
    claimed_at: str
    word: str | None = None
    refused: bool = False


class Prepared(Written):
    """The intent: exactly what is to be done, and under which key. `canonical_request` is for people: credentials are
    taken out of it. `undoes`: the operation that this one, a compensation, is to undo."""

    operation_id: str
    tool: str
    effect: Effect
    canonical_request: dict[str, Any]
    request_digest: str = Field(min_length=1)
    fingerprint: str = Field(pattern=r"^fx:v1:[0-9a-f]{64}$")
    idempotency_key: str = Field(min_length=1)
    key_valid: float
    approved_by: str | None = None
    prepared_at: str
    claim: Claim
    call: str | None = None
    undoes: str | None = None


class Outcome(Written):
    """How an operation ended, and how that is known: `executed` by an attempt, `found` by a look-up, said by a
    `person`, or decided by the author's `rule` for unknown outcomes. `answer` is the body that the model gets.
    `told`: the person gave its result too."""

    operation_id: str
    status: End
    how: How
    answer: Ref
    error: bool = False
    external_id: str | None = None
    by: str | None = None
    told: bool = False
    attempts: int = 1
    committed_at: str


class Review(Written):
    """Why a person is asked, after which claim: a later claim means that it was answered."""

    reason: str
    since: str
    claim: int
