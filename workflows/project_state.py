"""All that a project carries: one object, whole through continue-as-new, small however many sessions it has had."""

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, Field

from workflows.carried import Carried
from workflows.child_records import ChildEnd
from workflows.lineage import Child
from workflows.parking import PARKS
from workflows.project_records import Entry, ProjectOpening, Role, Said, SessionEnd, SessionNote
from workflows.records import Workspace
from workflows.requests import KEPT, append
from workflows.tasks import Course, Task

REASON = 1000
SAID = 3000
REASONS = 10


class Session(BaseModel):
    """The session at work: `child` is absent until it was started."""

    number: int
    role: Role
    task: str | None = None
    child: Child | None = None


class ProjectState(Carried[ProjectOpening]):
    """The position of a project between two workflow tasks. `workspace`: the files that the next session begins with.
    `keeps`: how often the list of tasks was written; `kept`: as it was written last. `stumbles`: plans or grades in a
    row that could not be used, `refused` why the last one. `commit`: where the repository stands."""

    own_work: ClassVar[frozenset[str]] = frozenset({"children"})

    course: Course = Field(default_factory=Course)
    workspace: Workspace | None = None
    session: Session | None = None
    sessions: int = 0
    keeps: int = 0
    kept: list[tuple[str, str]] = Field(default_factory=list)
    commit: str | None = None
    handoffs: list[SessionNote] = Field(default_factory=list)
    inbox: list[Said] = Field(default_factory=list)
    log: list[Entry] = Field(default_factory=list)
    asked: str | None = None
    budget_until: datetime | None = None
    stumbles: int = 0
    refused: str = ""

    @property
    def files(self) -> Workspace:
        """The workspace of a project that is open."""
        assert self.workspace is not None, "the project is not open yet"
        return self.workspace

    def book_opening(self, opening: ProjectOpening) -> None:
        """Books the opening, with the tasks of a fork."""
        self.begin(opening, opening.limits)
        self.workspace = opening.workspace
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
        """Keeps the last lines of the log. Messages that could not be used do not push out what was done."""
        line = entry.model_copy(update={"reason": entry.reason[:REASON]})
        append(self.log, line, lambda each: each.what == "rejected")

    def standing(self) -> list[tuple[str, str]]:
        """The tasks as `tasks.json` has them."""
        return [(task.id, task.status) for task in self.course.tasks]

    def trim(self) -> None:
        """Keeps the last reasons of each task, cut, and the last requests."""
        self.requests.settle()
        for task in self.course.tasks:
            task.reasons = [reason[:REASON] for reason in task.reasons[-REASONS:]]

    def used_now(self) -> dict[str, float]:
        """What is used of each limit, by the sessions that have ended."""
        return self.spent()

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
