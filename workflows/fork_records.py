"""The typed records of forks and edits: promises to runs that are alive, as those in `records`."""

from typing import Any

from pydantic import Field

from workflows.records import BundleRef, EffectRecord, Files, Head, Item, Record, Repeat, Turn, Usage


class ForkPoint(Record):
    """Where a fork began: the run as it was named, its thread, and the checkpoint."""

    workflow_id: str
    thread: str
    checkpoint: int
    sha256: str


class ForkRequest(Record):
    """Input of `run.fork`: the opened fork. The payload travels beside it, undecoded."""

    thread: str
    branch: str
    head: Head
    bundle: BundleRef
    repeat: Repeat = "ask"
    ancestry: list[str] = Field(default_factory=list)


class Forked(Record):
    """Output of `run.fork`: what the fork begins with. `goal` is a preview. `turn`: the last turn of the prefix, its
    calls as this run decides on them; `answers`: those that were settled. `base`: the list of entries with which the
    context begins, where it was edited; `said`: what edits appended that has to come after open calls. `usage`, `turns`
    and `tool_calls` are inherited by choice only. `inherited`, `after`: how many effects the context holds, and how
    many the source made that it does not hold."""

    point: ForkPoint
    goal: str = ""
    turn: Turn | None = None
    answers: list[Item] = Field(default_factory=list)
    said: list[Item] = Field(default_factory=list)
    base: str | None = None
    files: Files = Files()
    session: int = 1
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    inherited: int = 0
    after: int = 0


class EditRequest(Record):
    """Input of `run.edit`: where the run stands, and the edits. `turn`: whether the calls of a turn are being settled,
    or its answer stands; then `new` are its answers so far, and `unsettled` the ids of its other calls. `by`: whose
    edits they are."""

    thread: str
    head: Head
    base: str | None = None
    new: list[Item] = Field(default_factory=list)
    unsettled: list[str] = Field(default_factory=list)
    turn: bool = False
    edits: list[dict[str, Any]] = Field(default_factory=list)
    by: str | None = None


class Edited(Record):
    """Output of `run.edit`. `new`: the answers of the turn that is being settled. `operations`: the effects of calls
    that are not in the context any more. `refused`: why nothing was changed."""

    base: str = ""
    new: list[Item] = Field(default_factory=list)
    said: list[Item] = Field(default_factory=list)
    operations: list[EffectRecord] = Field(default_factory=list)
    goal: str | None = None
    refused: str | None = None
