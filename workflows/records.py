"""The typed records that cross between the workflow and the activities.

They are promises to runs that are alive: a field may be added with a default, never renamed, retyped or removed, and a
default stays what it is, since fields that are at theirs are left out of history.
Readers ignore fields they do not know, so that a worker of the last release can read what this one writes.
"""

from typing import Any, Literal

from pydantic import Field

from workflows.effect_record import Effect as Effect
from workflows.effect_record import EffectRecord as EffectRecord
from workflows.effect_record import OnEnd as OnEnd
from workflows.effect_record import Record as Record
from workflows.effect_record import Repeat as Repeat
from workflows.lineage import Child, Chosen, Parent, Terms
from workflows.lineage import Limits as Limits

Decision = Literal["allow", "ask", "question", "answered"]
TurnKind = Literal["calls", "answer", "empty", "refused", "content_filtered", "full"]
ToolStatus = Literal["done", "error", "review", "taken", "changed"]
ResultStatus = Literal["completed", "refused", "content_filtered", "budget_exhausted", "denied", "gave_up"]

PREVIEW_BYTES = 160
"""The most bytes of any body that history keeps beside its digest."""


class Ref(Record):
    """A body in the store: its digest, its size in bytes, and how it begins."""

    sha256: str
    bytes: int
    preview: str = ""

    def bare(self) -> "Ref":
        """Without the preview: for where it has been shown already."""
        return Ref(sha256=self.sha256, bytes=self.bytes)


class Head(Record):
    """Names one checkpoint: the branch, the number on it, and the digest of its record."""

    branch: str
    sequence: int
    sha256: str


class Item(Record):
    """What is new in the context since the head: a body in the store (`ref`), or a short text not yet stored.

    `call` is the id of the tool call that it answers; without one it is a user message.
    """

    ref: Ref | None = None
    text: str | None = None
    call: str | None = None
    tool: str | None = None
    by: str | None = None


class Files(Record):
    """What a run's workspace holds, as digests of entries: a whole listing, and the changes since, as they came in."""

    base: str | None = None
    changes: list[str] = Field(default_factory=list)

    def plus(self, change: str) -> "Files":
        """The state after one more change."""
        return self if change in self.changes else Files(base=self.base, changes=[*self.changes, change])


class Workspace(Record):
    """The files that a run left, or was given: whose thread keeps them, and their state there."""

    thread: str
    files: Files = Files()


class Usage(Record):
    """What the model cost: requests, tokens and US dollars. `estimated`: a server gave no numbers, ours stand in."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False

    def plus(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_usd=round(self.cost_usd + other.cost_usd, 9),
            estimated=self.estimated or other.estimated,
        )


class BundleRef(Record):
    """The bundle a run is pinned to: `digest` names its manifest in the store."""

    name: str
    version: str
    digest: str


class OpenRequest(Record):
    """Input of `run.open`. The payloads travel beside it, undecoded."""

    workflow_id: str
    first_execution_run_id: str
    branch: str
    payloads: int
    cron: bool


class Opening(Record):
    """What the opening decided: everything that stays fixed while the run lives.

    `ancestry`: the threads that this one was forked from; `repeat`: what an equal request made there, or before a
    reset, means. `parent`: whom it works for; `depth_left`: how many levels of sub-agents may be below it.
    `shows_digest`: the bundle's digest is among its search attributes. `files`: the workspace that it was given;
    `trailers`: what its commits say at their end. `chosen`: what its start said itself; None in a run of a release that
    did not keep it.
    """

    thread: str
    goal: str
    bundle: BundleRef
    versions: dict[str, str]
    limits: Limits
    head: Head
    bytes: int = 0
    at: str = ""
    budget_wait: float
    interactive: bool = False
    structured: bool = False
    max_denials: int = 5
    max_bad_turns: int = 5
    history_events: int = 4000
    history_bytes: int = 4_000_000
    max_faults: dict[str, int] = Field(default_factory=dict)
    search_attributes: bool = False
    shows_digest: bool = False
    repeat: Repeat = "ask"
    on_end: OnEnd = "keep"
    ancestry: list[str] = Field(default_factory=list)
    requester: str | None = None
    approvers: list[str] = Field(default_factory=list)
    distinct: bool = False
    notices: list[float] = Field(default_factory=list)
    parent: Parent | None = None
    depth_left: int = 0
    files: Files = Files()
    trailers: dict[str, str] = Field(default_factory=dict)
    chosen: Chosen | None = None


class Call(Record):
    """One tool call of a turn, judged.

    `allow`: run it. `ask`: a person first. `question`: it *is* a question to a person. `answered`: it will not run, and
    `answer` says why (malformed, unknown, the same as another, or denied: then `denied_by` says whether by policy or by
    the person who denied an equal call before). `writes`: it changes the workspace. `arguments` are the final ones
    where they are short or a person must see them; else the checkpoint holds them and `arguments_preview` is how they
    begin. `wants`: of a call that starts a sub-agent, the budget that it asks for.
    """

    id: str
    tool: str
    decision: Decision
    summary: str = ""
    effect: Effect = "read"
    local: bool = False
    timeout: float = 30.0
    ask_timeout: float | None = None
    reason: str | None = None
    answer: Ref | None = None
    operation_id: str | None = None
    fingerprint: str | None = None
    request_digest: str | None = None
    arguments: dict[str, Any] | None = None
    arguments_preview: str | None = None
    denied_by: Literal["policy", "person"] | None = None
    writes: bool = False
    wants: Limits | None = None


class TurnRequest(Record):
    """Input of `model.turn`: of constant size, whatever the run remembers. `abandoned`: the operations of a path that
    was left, as far as the run knows them. `base`: a session begins, with the entries of that list instead of what the
    head holds."""

    thread: str
    branch: str
    turn: int
    head: Head
    new: list[Item]
    bundle: str
    numbers: dict[str, int] = Field(default_factory=dict)
    denied: list[str] = Field(default_factory=list)
    branched: bool = False
    session: int = 1
    repeat: Repeat = "ask"
    ancestry: list[str] = Field(default_factory=list)
    abandoned: list[str] = Field(default_factory=list)
    files: Files = Files()
    quirks: dict[str, list[str]] = Field(default_factory=dict)
    calls_left: int | None = None
    base: str | None = None
    depth_left: int = 0


class Turn(Record):
    """Output of `model.turn`. `bytes` and `at`: size and time of its checkpoint. `text` is a preview, `output` the
    whole final text where there is one, `nudge` what the model is told when its turn was no turn (kind `empty`).

    `abandoned`: the effects of paths that were left, where that list has changed. `route`: which of the bundle's models
    answered. `faults`: what was wrong with it, of the kinds that are counted. `quirks`: what was found out about
    servers, by route. `reserve`: what the next call costs at least. Kind `full`: the model was not asked, since the
    context is over the session's `boundary`; there is no checkpoint. `branched`: as the request said.
    """

    head: Head
    bytes: int = 0
    at: str = ""
    kind: TurnKind
    text: str = ""
    output: str | None = None
    structured: Any = None
    nudge: str | None = None
    calls: list[Call] = Field(default_factory=list)
    usage: Usage = Usage()
    model: str = ""
    abandoned: list[EffectRecord] | None = None
    files: Files | None = None
    route: int = 0
    faults: list[str] = Field(default_factory=list)
    quirks: dict[str, list[str]] = Field(default_factory=dict)
    reserve: Usage | None = None
    boundary: Literal["reset", "compact", "off"] | None = None
    branched: bool = False


class Resolution(Record):
    """A person's word on an operation whose outcome nobody knows. `code` names the request that it answers: a word that
    it did not happen lets one attempt act, and no second one."""

    outcome: Literal["happened", "not_happened", "give_up"]
    result: Any = None
    by: str
    code: str = ""


class ToolRequest(Record):
    """Input of `tool.run`, `tool.read` and `effect.doubt`. The arguments are those of call `id` in checkpoint `head`,
    unless a person edited them: then `edited` is the body that holds the new ones. `doubt`: why nobody knows.
    `trailers`: what a commit says at its end."""

    thread: str
    branch: str
    head: Head
    bundle: str
    call: Call
    edited: Ref | None = None
    approved_by: str | None = None
    resolution: Resolution | None = None
    doubt: str = ""
    files: Files = Files()
    terms: Terms | None = None
    trailers: dict[str, str] = Field(default_factory=dict)


class ToolAnswer(Record):
    """Output of `tool.run`. `review`: nobody knows whether it happened, `reason` says what is known.
    `taken`: the operation id belongs to another request (`effect`), nothing was run, and `renamed` is the call under an
    id of this branch. `changed`: what would run is not what was decided; nothing was run, and `renamed` is the call as
    it is now. `undoing`: the record of the compensation itself, where one was tried. `child`: the sub-agent that was
    started, whose end is the call's answer."""

    status: ToolStatus
    answer: Ref | None = None
    reason: str | None = None
    effect: EffectRecord | None = None
    renamed: Call | None = None
    undoing: EffectRecord | None = None
    files: str | None = None
    child: Child | None = None


class Problem(Record):
    """Why a run is parked: the failure's type, what is wrong, and the command or act that mends it."""

    type: str
    message: str
    remedy: str
    retry_after: float | None = None
