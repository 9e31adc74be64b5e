"""What a bundle says, as typed records: the tables of bundle.toml, and the manifest that a run is pinned to."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from activities.canonical import digest
from activities.durations import Seconds
from activities.tools import Tool
from workflows.records import Effect, Limits, OnEnd, Repeat
from workflows.state import STATE_SCHEMA, WORKFLOW_VERSION

DIGESTED = ("prompt", "model_config", "tool_schema")
"""The parts of a bundle whose digests stand beside their versions."""


class Part(BaseModel):
    """A table of bundle.toml. Unknown keys are refused by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Price(Part):
    """US dollars per million tokens."""

    input: float = 0.0
    cached_input: float | None = None
    output: float = 0.0


Profile = Literal[
    "auto",
    "openai",
    "compatible",
    "vllm",
    "ollama",
    "llamacpp",
    "litellm",
    "reasoning_back",
    "reasoning_forbidden",
    "plain",
]
"""What a server is like, as far as it is known beforehand (see `activities.profiles`)."""

FailureKind = Literal["trouble", "rate_limit", "rejected", "overflow", "invalid", "refused", "content_filtered"]
"""Why another route may be asked."""

FALL_BACK: tuple[FailureKind, ...] = ("trouble", "rate_limit", "rejected", "overflow", "invalid")


class Model(Part):
    """One route to a model. Routes are tried in order; `fall_back_on` says after which failures of this one the next
    is asked."""

    model: str
    api: Literal["chat", "responses"] = "chat"
    profile: Profile = "auto"
    structured: Literal["auto", "native", "tool", "prompt"] = "auto"
    fall_back_on: tuple[FailureKind, ...] = FALL_BACK
    connect_timeout: Annotated[Seconds, Field(gt=0, le=60)] = 10.0
    idle_timeout: Annotated[Seconds, Field(gt=0, le=600)] = 60.0
    total_timeout: Annotated[Seconds, Field(gt=0, le=720)] = 600.0
    base_url_env: str = "OPENAI_BASE_URL"
    api_key_env: str = "OPENAI_API_KEY"
    stream: bool = True
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None
    context_tokens: Annotated[int, Field(gt=0)] = 128_000
    temperature: float | None = None
    retry_after_cap: Seconds = 900.0
    unavailable_after: Seconds = 1800.0
    price: Price = Price()


class Budget(Limits):
    """The limits, and how long (seconds) a run that reached one waits for more."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    wait: Seconds = 86_400.0


class Session(Part):
    """When a new session begins."""

    boundary: Literal["reset", "compact", "off"] = "reset"
    at: Annotated[float, Field(gt=0, le=1)] = 0.8


class Rule(Part):
    """One policy rule; the first whose `tool` glob and `when` match decides. `timeout`: seconds that an ask waits."""

    tool: str
    when: str | None = None
    decision: Literal["allow", "ask", "deny"]
    timeout: Seconds | None = None
    reason: str | None = None


class EffectRule(Part):
    """How some calls of a tool recover; policy defaults still go by the declared class."""

    tool: str
    when: str | None = None
    effect: Effect


class Effects(Part):
    """What an equal request in the ancestry means, and what happens to effects when a run fails."""

    repeat: Repeat = "ask"
    on_end: OnEnd = "keep"


class Caps(Part):
    """Caps on what one run may do wrong, on what a tool may say to the model (characters), on how long the history of
    one execution grows before the run continues as new, on the sub-agents at work at once (`fan_out`) and on how many
    levels of them there may be (`depth`)."""

    calls_per_turn: Annotated[int, Field(gt=0, le=128)] = 32
    bad_turns: Annotated[int, Field(gt=0)] = 5
    truncations: Annotated[int, Field(gt=0)] = 5
    repairs: Annotated[int, Field(ge=0)] = 2
    faulty_turns: Annotated[int, Field(gt=0)] = 10
    same_failures: Annotated[int, Field(gt=0)] = 3
    same_calls: Annotated[int, Field(gt=0)] | None = None
    denials: Annotated[int, Field(gt=0)] = 5
    tool_output: Annotated[int, Field(ge=1000)] = 50_000
    history_events: Annotated[int, Field(ge=50)] = 4000
    history_bytes: Annotated[int, Field(ge=100_000)] = 4_000_000
    fan_out: Annotated[int, Field(ge=0, le=128)] = 8
    depth: Annotated[int, Field(ge=0, le=10)] = 2


class Notice(Part):
    """Whom to tell of an open request: a webhook, whose URL is the credential of that name and whose HMAC key the
    credential `<name>_key`; or mail addresses, through the credential `smtp`. `after`: only if it has been open for so
    long, as a reminder or to a second audience."""

    webhook: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] | None = None
    email: list[str] = Field(default_factory=list)
    after: Seconds = 0.0

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.webhook is None) == (not self.email):
            raise ValueError("name either a webhook or e-mail addresses")
        return self


class Approvals(Part):
    """Who may decide (anybody, where `approvers` is empty), and who is told. `distinct_from_requester`: whoever asked
    for the run may deny, not approve."""

    approvers: list[str] = Field(default_factory=list)
    distinct_from_requester: bool = False
    notify: list[Notice] = Field(default_factory=list)

    def times(self) -> list[float]:
        """When there is something to send, in seconds from the request."""
        return sorted({notice.after for notice in self.notify})


class ProjectRules(Part):
    """How projects with this coder are worked on: after how many rejections of a task a person is asked, how many
    passing tasks are checked again before each task, whether an evaluator grades (else a task passes by its checks),
    and the seconds that one check command may take."""

    tries: Annotated[int, Field(gt=0)] = 3
    verify: Annotated[int, Field(ge=0)] = 2
    grade: bool = True
    check: Annotated[Seconds, Field(gt=0, le=3600)] = 600.0


class BundleFile(Part):
    """All of bundle.toml. Tables that are named like a tool are that tool's options."""

    description: str = ""
    tools: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
    model: list[Model] = Field(min_length=1)
    budget: Budget = Budget()
    session: Session = Session()
    policy: list[Rule] = Field(default_factory=list)
    effect: list[EffectRule] = Field(default_factory=list)
    effects: Effects = Effects()
    limits: Caps = Caps()
    approvals: Approvals = Approvals()
    project: ProjectRules = ProjectRules()
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @field_validator("versions")
    @classmethod
    def _known_versions(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := set(value) - {"prompt", "model_config", "tool_schema", "state_schema"}:
            raise ValueError(f"unknown version names: {', '.join(sorted(unknown))}")
        return value


class ToolSpec(Part):
    """A tool as the bundle's manifest pins it: what the model is shown and how it recovers."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    on_unknown: Literal["review", "skip", "retry"] = "review"
    local: bool = False
    question: bool = False
    timeout: float = 30.0
    key_valid: float = 86_400.0
    digest: str


class Manifest(BaseModel):
    """A bundle version with the tools it had when it was first used: the unit that a run is pinned to."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    version: str
    folder_digest: str
    prompt: str
    file: BundleFile
    tools: list[ToolSpec]
    digests: dict[str, str]

    def tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, in either form (`crm.refund`, `crm__refund`)."""
        return next((tool for tool in self.tools if name in (tool.name, wire_name(tool.name))), None)

    def versions(self, digest_of_manifest: str, build_id: str) -> dict[str, str]:
        """What history, checkpoints, spans and the result record of where they came from: names, and digests of what
        the names stand for."""
        named = self.file.versions
        return {
            "workflow": WORKFLOW_VERSION,
            "state_schema": named.get("state_schema", STATE_SCHEMA),
            "prompt": named.get("prompt", self.version),
            "model_config": named.get("model_config", self.version),
            "tool_schema": named.get("tool_schema", self.version),
            "bundle": f"{self.name}@{self.version}",
            "bundle_digest": digest_of_manifest,
            **{f"{part}_digest": self.digests[part] for part in DIGESTED if part in self.digests},
            "build_id": build_id,
        }


def tool_digest(tool: Tool) -> str:
    """What a tool is, as this worker has it: name, description, parameters and effect."""
    parts = {"name": tool.name, "description": tool.description, "parameters": tool.schema, "effect": tool.effect}
    return digest(parts)


def wire_name(name: str) -> str:
    """A tool's name as models see it: providers allow no dot."""
    return name.replace(".", "__")
