"""What runs and projects both carry through continue-as-new."""

from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, Field

from workflows.family import Family
from workflows.lineage import Limits
from workflows.records import Problem, Usage
from workflows.requests import Requests

Begun = TypeVar("Begun", bound=BaseModel)

APPLIED = 100
"""How many answered updates are remembered, so that one that is sent again over a rollover is not applied twice."""


class Carried(BaseModel, Generic[Begun]):
    """`opening` is absent only until it is open. `applied`: what updates were answered, by their id; `rolled_from`: the
    worker version that the last rollover was to leave."""

    own_work: ClassVar[frozenset[str]] = frozenset()
    """Waiting for this is running."""

    branch: str
    opening: Begun | None = None
    limits: Limits = Limits()
    usage: Usage = Usage()
    family: Family = Field(default_factory=Family)
    requests: Requests = Field(default_factory=Requests)
    paused: str | None = None
    problem: Problem | None = None
    applied: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rolled_from: str | None = None

    @property
    def opened(self) -> Begun:
        """The opening of what is open."""
        assert self.opening is not None, "it is not open yet"
        return self.opening

    def begin(self, opening: Begun, limits: Limits) -> None:
        """Books the opening. Limits that a person sent before it stand."""
        self.opening, self.limits = opening, limits.model_copy(update=self.limits.model_dump(exclude_none=True))

    def spent(self, turns: int = 0, tool_calls: int = 0, seconds: float = 0.0) -> dict[str, float]:
        """What is used of each limit: by its own work, as given, and by the children that have ended."""
        below = self.family.spent
        return {
            "turns": turns + int(below.get("turns", 0)),
            "tokens": self.usage.input_tokens + self.usage.output_tokens,
            "tool_calls": tool_calls + int(below.get("tool_calls", 0)),
            "cost_usd": self.usage.cost_usd,
            "seconds": round(seconds + below.get("seconds", 0), 3),
        }

    def waiting_on(self) -> list[str]:
        """What it waits for, apart from its own work."""
        raise NotImplementedError

    def status(self) -> str:
        """`parked`, `paused`, `waiting` or `running`."""
        if self.problem is not None:
            return "parked"
        if self.paused is not None:
            return "paused"
        return "waiting" if set(self.waiting_on()) - self.own_work else "running"

    def book_update(self, update_id: str, answer: dict[str, Any]) -> None:
        """Remembers what an update was answered: a client that was cut off sends it again under the same id."""
        self.applied[update_id] = answer
        for name in list(self.applied)[:-APPLIED]:
            del self.applied[name]
