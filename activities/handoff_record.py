"""The record of a handoff, as the store keeps it beside the checkpoints: a promise, as those in `workflows.records`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from activities.errors import IncompatiblePayload
from workflows.messages import explain
from workflows.records import Opening, Usage


class HandoffRecord(BaseModel):
    """What one session left for the next. `request_digest`: of what was asked; `new`: the entries that were new then;
    `base`: the list of entries with which the next session begins; `upgrade`: the bundle that it moves to, and from
    which; `opening`: the run's under that one; `sha256`: of all the rest."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(1, alias="schema")
    thread: str
    branch: str
    session: int
    at: str
    by: str = ""
    mode: Literal["reset", "compact"]
    request_digest: str
    new: list[str] = Field(default_factory=list)
    base: str
    facts: dict[str, Any] = Field(default_factory=dict)
    judgement: dict[str, Any] = Field(default_factory=dict)
    usage: Usage = Usage()
    versions: dict[str, str] = Field(default_factory=dict)
    upgrade: dict[str, str] | None = None
    opening: Opening | None = None
    sha256: str = ""


def fitting(record: dict[str, Any], key: str) -> HandoffRecord:
    """The record, typed. Raises IncompatiblePayload that names the field which does not fit."""
    try:
        return HandoffRecord.model_validate(record)
    except ValidationError as error:
        raise IncompatiblePayload(f"handoff {key} does not fit this release: {explain(error)}") from None
