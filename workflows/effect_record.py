"""What a run shows of an effect, and what all typed records have in common; see `records`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Effect = Literal["read", "idempotent", "once"]
Repeat = Literal["ask", "run", "reuse"]
OnEnd = Literal["keep", "compensate"]


class Record(BaseModel):
    """A frozen value; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EffectRecord(Record):
    """One line of the ledger, as queries and the result show it. Long values are previews. `in_doubt`: why a person is
    asked. `abandoned`: made on a path that a reset or a workflow retry left, so part of the world, not of the run."""

    operation_id: str
    tool: str
    effect: Effect
    status: str
    canonical_request: Any = None
    fingerprint: str = ""
    idempotency_key: str = ""
    external_id: str | None = None
    result: Any = None
    attempts: int = 0
    prepared_at: str | None = None
    committed_at: str | None = None
    approved_by: str | None = None
    in_doubt: str | None = None
    abandoned: bool = False
