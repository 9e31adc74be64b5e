"""What happened, in the words that logs, traces and measures share. Records only; nothing here exports anything."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from temporalio.exceptions import ApplicationError

from workflows.records import Opening, ToolAnswer, ToolRequest, Turn, TurnRequest, Usage
from workflows.session_records import Handoff


@dataclass(frozen=True)
class Step:
    """One attempt of an activity that has ended. Times are Unix nanoseconds.

    `recorded`: the step had been done before and was found, so nothing was asked for or paid again.
    """

    activity: str
    workflow_id: str
    run_id: str
    attempt: int
    began: int
    ended: int
    request: Any = None
    result: Any = None
    error: BaseException | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1e9

    @property
    def recorded(self) -> bool:
        """Whether it was found done."""
        return bool(self.notes.get("recorded"))

    @property
    def usage(self) -> Usage | None:
        """What it cost of a model, where it asked one; a step that was found done has cost nothing more."""
        return self.result.usage if isinstance(self.result, Turn | Handoff) and not self.recorded else None

    @property
    def model(self) -> str:
        """The model that was asked, of several the last one, as the bundle names it; empty where none was."""
        return str(self.notes.get("model", ""))

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions and digests that it was done under; empty where they do not matter."""
        found: Mapping[str, str] = self.notes.get("versions", {})
        return self.result.versions if isinstance(self.result, Opening) else found

    @property
    def turn(self) -> int | None:
        """The number of the turn that it belongs to, where it belongs to one."""
        if isinstance(self.request, TurnRequest):
            return self.request.turn
        return self.request.head.sequence if isinstance(self.request, ToolRequest) else None

    @property
    def call(self) -> str | None:
        """The id of the tool call."""
        return self.request.call.id if isinstance(self.request, ToolRequest) else None

    @property
    def tool(self) -> str | None:
        """The tool."""
        return self.request.call.tool if isinstance(self.request, ToolRequest) else None

    @property
    def error_type(self) -> str | None:
        """The failure's name; never its text, which may hold what must not leave."""
        if self.error is None:
            failed = isinstance(self.result, ToolAnswer) and self.result.status == "error"
            return "tool_error" if failed else None
        if isinstance(self.error, ApplicationError) and self.error.type:
            return self.error.type
        return type(self.error).__name__

    def ids(self) -> dict[str, Any]:
        """The ids of the step: run, turn, call, attempt."""
        found = {
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
            "turn": self.turn,
            "call_id": self.call,
            "attempt": self.attempt,
        }
        return {name: value for name, value in found.items() if value is not None}

    def line(self) -> str:
        """The step in one line, without anything that was said."""
        what = f"{self.activity}" + (f" {self.tool}" if self.tool else "")
        place = f" turn {self.turn}" if self.turn is not None else ""
        call = f" call {self.call}" if self.call else ""
        end = f"failed: {self.error_type}" if self.error is not None else self._outcome()
        return f"{self.workflow_id}{place}{call}: {what} attempt {self.attempt}: {end} ({self.seconds:.2f} s)"

    def _outcome(self) -> str:
        found = ", found done" if self.recorded else ""
        if isinstance(self.result, Turn):
            usage = self.result.usage
            return f"{self.result.kind}, {usage.input_tokens}+{usage.output_tokens} tokens{found}"
        if isinstance(self.result, ToolAnswer):
            return f"{self.result.status}{found}"
        return f"done{found}"


@dataclass(frozen=True)
class Waited:
    """A request to people that was decided, or expired. `asked` and `decided` are the run's own times."""

    workflow_id: str
    run_id: str
    code: str
    kind: str
    outcome: str
    asked: datetime
    decided: datetime
    tool: str | None = None
    by: str | None = None

    def line(self) -> str:
        """The decision in one line."""
        took = (self.decided - self.asked).total_seconds()
        about = f" about {self.tool}" if self.tool else ""
        who = f" by {self.by}" if self.by else ""
        return f"{self.workflow_id}: {self.kind} {self.code}{about}: {self.outcome}{who} after {took:.1f} s"


@dataclass(frozen=True)
class Ended:
    """An execution of a run that has ended: with a status of the result, `failed`, `cancelled`, or `rolled_over`."""

    workflow_id: str
    run_id: str
    status: str
    began: datetime
    ended: datetime
    bundle: str = ""
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """The end in one line."""
        return f"{self.workflow_id}: {self.status} after {self.turns} turns, {self.cost_usd:.4f} USD"


@dataclass(frozen=True)
class Resumed:
    """A run that a worker rebuilt from its history: after a death, a deploy, or when it was no longer in memory."""

    workflow_id: str
    run_id: str

    def line(self) -> str:
        """It in one line."""
        return f"{self.workflow_id}: rebuilt from its history"


Event = Step | Waited | Ended | Resumed
Observer = Callable[[Event], None]
