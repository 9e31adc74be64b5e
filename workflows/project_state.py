"""All that a project carries: one object, whole through continue-as-new, small however many sessions it has had."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from workflows.child_records import ChildEnd
from workflows.family import Family
from workflows.lineage import Child
from workflows.parking import PARKS
from workflows.project_records import Entry, ProjectOpening, Role, Said, SessionEnd, SessionNote
from workflows.records import Limits, Problem, Usage, Workspace
from workflows.tasks import Course, Task

KEPT = 50
"""How many handoffs, log lines and answered updates a project carries."""

REASON = 1000
SAID = 3000
REASONS = 10


class Session(BaseModel):
    """The session at work: `child` is absent until it was started."""

    number: int
    role: Role
    task: str | None = None
    child: Child | None = None


class ProjectState(BaseModel):
    """The position of a project between two workflow tasks. `workspace`: the files that the next session begins with.
    `keeps`: how often the list of tasks was written; `kept`: as it was written last. `stumbles`: plans or grades in a
    row that could not be used, `refused` why the last one. `commit`: where the repository stands."""

    branch: str
    opening: ProjectOpening | None = None
    course: Course = Field(default_factory=Course)
    workspace: Workspace | None = None
    limits: Limits = Limits()
    family: Family = Field(default_factory=Family)
    usage: Usage = Usage()
    session: Session | None = None
    sessions: int = 0
    keeps: int = 0
    kept: list[tuple[str, str]] = Field(default_factory=list)
    commit: str | None = None
    handoffs: list[SessionNote] = Field(default_factory=list)
    inbox: list[Said] = Field(default_factory=list)
    log: list[Entry] = Field(default_factory=list)
    paused: str | None = None
    problem: Problem | None = None
    asked: str | None = None
    budget_until: datetime | None = None
    stumbles: int = 0
    refused: str = ""
    applied: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rolled_from: str | None = None

    @property
    def opened(self) -> ProjectOpening:
        """The opening of a project that is open."""
        assert self.opening is not None, "the project is not open yet"
        return self.opening

    @property
    def files(self) -> Workspace:
        """The workspace of a project that is open."""
        assert self.workspace is not None, "the project is not open yet"
        return self.workspace

    def book_opening(self, opening: ProjectOpening) -> None:
        """Books the opening. Limits that a person sent before it stand."""
        sent = self.limits.model_dump(exclude_none=True)
        self.opening, self.workspace = opening, opening.workspace
        self.limits = opening.limits.model_copy(update=sent)
        self.course.terms, self.course.tasks, self.commit = opening.terms, list(opening.tasks), opening.commit

    def book_end(self, session: Session, end: SessionEnd) -> None:
        """Books what a session cost."""
        name = str(session.number)
        if name in self.family.children:
            self.usage = self.usage.plus(end.usage)
            self.family.book_end(name, ChildEnd(status=end.status, used=end.used))
        self.session = None

    def book_handoff(self, handoff: SessionNote) -> None:
        """Keeps the last ones."""
        self.handoffs = [*self.handoffs, handoff][-KEPT:]

    def note(self, entry: Entry) -> None:
        """Keeps the last lines of the log."""
        self.log = [*self.log, entry.model_copy(update={"reason": entry.reason[:REASON]})][-KEPT:]

    def book_update(self, update_id: str, answer: dict[str, Any]) -> None:
        """Remembers what an update was answered: a client that was cut off sends it again under the same id."""
        self.applied[update_id] = answer
        for name in list(self.applied)[:-KEPT]:
            del self.applied[name]

    def standing(self) -> list[tuple[str, str]]:
        """The tasks as `tasks.json` has them."""
        return [(task.id, task.status) for task in self.course.tasks]

    def trim(self) -> None:
        """Keeps the last reasons of each task, cut."""
        for task in self.course.tasks:
            task.reasons = [reason[:REASON] for reason in task.reasons[-REASONS:]]

    def used_now(self) -> dict[str, float]:
        """What is used of each limit, by the sessions that have ended."""
        spent = self.family.spent
        return {
            "turns": int(spent.get("turns", 0)),
            "tokens": self.usage.input_tokens + self.usage.output_tokens,
            "tool_calls": int(spent.get("tool_calls", 0)),
            "cost_usd": self.usage.cost_usd,
            "seconds": round(spent.get("seconds", 0), 3),
        }

    def reached(self) -> dict[str, float]:
        """The limits of which nothing is left."""
        used = self.used_now()
        return {name: limit for name, limit in self.limits.model_dump(exclude_none=True).items() if used[name] >= limit}

    def passing(self) -> list[Task]:
        """The tasks that pass."""
        return [task for task in self.course.tasks if task.status == "passing"]

    def waiting_on(self) -> list[str]:
        """What the project waits for, apart from its own work."""
        found = [asked.kind for asked in self.family.pending()]
        if self.asked is not None:
            found.append("task")
        if self.budget_until is not None:
            found.append("budget")
        if self.problem is not None:
            found.append(PARKS[self.problem.type][0])
        if self.family.children:
            found.append("children")
        return list(dict.fromkeys(found))

    def status(self) -> str:
        """`parked`, `paused`, `waiting` or `running`. A session at work is the project's own work."""
        if self.problem is not None:
            return "parked"
        if self.paused is not None:
            return "paused"
        return "waiting" if set(self.waiting_on()) - {"children"} else "running"
