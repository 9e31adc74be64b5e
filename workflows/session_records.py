"""The typed records of session boundaries and of a run's end: promises, as those in `records`."""

from typing import Any, Literal

from pydantic import Field

from workflows.records import BundleRef, Files, Head, Item, Opening, Record, ResultStatus, Usage


class HandoffRequest(Record):
    """Input of `session.handoff`: where the session stands (`head`, `base` if it has had no turn yet, `new`), and what
    the workflow alone knows: what people are asked, what is used of the limits, what was found out about the model
    servers (`quirks`). `by`: who wanted it. `upgrade`: the bundle of the next session, where that is another one,
    and `opening` the run's under it. `takes_opening`: whoever asks goes by the opening that comes back."""

    thread: str
    branch: str
    session: int
    head: Head
    base: str | None = None
    new: list[Item] = Field(default_factory=list)
    bundle: BundleRef
    files: Files = Files()
    turns: int = 0
    pending: list[dict[str, Any]] = Field(default_factory=list)
    limits: dict[str, Any] = Field(default_factory=dict)
    used: dict[str, Any] = Field(default_factory=dict)
    by: str = ""
    upgrade: BundleRef | None = None
    quirks: dict[str, list[str]] = Field(default_factory=dict)
    opening: Opening | None = None
    takes_opening: bool = False


class Handoff(Record):
    """Output of `session.handoff`. `base`: the digest of the list of entries with which the next session begins.
    `artifact`: what was handed over, long texts cut; the whole of it stands under `key`. `upgraded`:
    the digest of the bundle that the next session was made for, where that is another one, and `opening` the run's
    under it: the upgrade that waits by then may be a later one."""

    base: str
    key: str
    sha256: str
    mode: Literal["reset", "compact"]
    artifact: dict[str, Any] = Field(default_factory=dict)
    usage: Usage = Usage()
    upgraded: str | None = None
    opening: Opening | None = None


class Conclusion(Record):
    """With which status a run is about to end, and why: it is carried over a rollover that comes before the end."""

    status: ResultStatus
    reason: str | None = None


class ClosingRequest(Record):
    """Input of `run.close`: which thread has ended, and what its workspace holds then."""

    thread: str
    files: Files = Files()


class Closing(Record):
    """Output of `run.close`: the files in the run's workspace."""

    artifacts: list[dict[str, Any]] = Field(default_factory=list)
    total: int = 0
