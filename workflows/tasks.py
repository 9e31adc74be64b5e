"""The course of a project: which session comes next, and what its outcome makes of the tasks. Pure, without a clock.

    plan ---> verify ---> work ---> grade ---> verify ...      until all tasks pass or are dropped
              (checks)    (coder)   (evaluator)

Laws, which tests attack:
- Only a grade, or a person, makes a task pass, and only a check that fails, or a person, takes that back. What a person
  accepted only a person takes back.
- Criteria and checks are those of the plan: no session changes them.
- A task that was rejected, or found broken, `tries` times is a person's to decide on, before anything else is done.
"""

from typing import Literal

from pydantic import BaseModel, Field

from workflows.effect_record import Record

Status = Literal["open", "done", "passing", "failed", "dropped"]
"""`done`: its session says so, and it is not graded yet. `failed`: rejected too often; a person decides."""

Kind = Literal["plan", "verify", "work", "grade", "ask", "end"]


class Rules(Record):
    """How the project is worked on; newer models need less of it. `verify`: how many passing tasks are checked again
    before each task. `grade`: whether an evaluator grades; else a task passes by its checks. `check`: the seconds that
    one check command may take."""

    tries: int = 3
    verify: int = 2
    grade: bool = True
    check: float = 600.0


class Task(BaseModel):
    """One task. `reasons`: why it was rejected or flipped, the newest last. `commit`: of its last session. `verified`:
    the number of the step that last found it passing. `accepted`: by a person, so its checks are not asked again.
    `broken`: how often it passed and then did not."""

    id: str
    title: str
    acceptance: list[str]
    checks: list[list[str]]
    status: Status = "open"
    rejected: int = 0
    reasons: list[str] = Field(default_factory=list)
    commit: str | None = None
    verified: int = 0
    accepted: bool = False
    broken: int = 0


class Step(Record):
    """What comes next. `tasks`: the ids that it is about; `work` names its one task."""

    kind: Kind
    tasks: list[str] = Field(default_factory=list)


class Course(BaseModel):
    """The tasks in their order, and how far the project is. `verified`: whether passing tasks were checked since the
    last task was begun."""

    terms: Rules = Rules()
    tasks: list[Task] = Field(default_factory=list)
    steps: int = 0
    verified: bool = False

    def next(self) -> Step:
        """The next step; the same until its outcome is booked."""
        if not self.tasks:
            return Step(kind="plan")
        if failed := self._with("failed"):
            return Step(kind="ask", tasks=[failed[0].id])
        if done := self._with("done"):
            return Step(kind="grade", tasks=[done[0].id])
        if not self._with("open") and self.verified:
            return Step(kind="end")
        if not self.verified and (again := self._to_verify()):
            return Step(kind="verify", tasks=again)
        opened = self._with("open")
        return Step(kind="work", tasks=[opened[0].id]) if opened else Step(kind="end")

    def planned(self, tasks: list[Task]) -> None:
        """The initializer's list. Raises ValueError for none, for an id twice, and for one without criteria."""
        ids = [task.id for task in tasks]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"the id {twice[0]!r} is given to two tasks")
        if empty := [task.id for task in tasks if not task.acceptance or not task.checks]:
            raise ValueError(f"the task {empty[0]!r} has no acceptance criteria, or no checks")
        if not tasks:
            raise ValueError("the plan has no tasks")
        self.tasks = [Task(id=t.id, title=t.title, acceptance=t.acceptance, checks=t.checks) for t in tasks]
        self._book()

    def checked(self, broken: dict[str, str], seen: list[str]) -> None:
        """The passing tasks `seen` were checked again; `broken` says of some why they pass no more."""
        self._book()
        self.verified = True
        for task in map(self.task, seen):
            if task.id in broken and task.status == "passing":
                task.broken += 1
                task.status = "failed" if task.broken >= self.terms.tries else "open"
                task.reasons.append(f"it passed, and was broken since: {broken[task.id]}")
            elif task.id not in broken:
                task.verified = self.steps

    def worked(self, task_id: str, commit: str | None, passes: bool, said: str = "") -> None:
        """A coding session has ended. `passes`: the task's own checks do, run by the project and not by the session. A
        session that left them failing counts as a rejection."""
        self._book()
        self.verified = False
        task = self.task(task_id)
        task.commit = commit or task.commit
        if not passes:
            self._reject(task, said or "its checks fail")
        elif self.terms.grade:
            task.status = "done"
        else:
            task.status, task.verified = "passing", self.steps

    def graded(self, task_id: str, passing: bool, reasons: list[str]) -> None:
        """The evaluator's word."""
        self._book()
        task = self.task(task_id)
        if passing:
            task.status, task.verified = "passing", self.steps
        else:
            self._reject(task, *reasons)

    def decided(self, task_id: str, accept: bool, reason: str = "") -> None:
        """A person's word on a result: it passes, or is to be done again with all its tries."""
        self._book()
        task = self.task(task_id)
        task.status, task.accepted = ("passing" if accept else "open"), accept
        task.rejected = task.broken = 0
        if reason:
            task.reasons.append(reason)

    def dropped(self, task_id: str) -> None:
        """A person takes the task out."""
        self.task(task_id).status = "dropped"

    def reordered(self, ids: list[str]) -> None:
        """A person puts tasks first, in this order. Raises ValueError for an unknown id."""
        first = {each: self.task(each) for each in ids}
        self.tasks = [*first.values(), *(task for task in self.tasks if task.id not in first)]

    def task(self, task_id: str) -> Task:
        """Raises ValueError for an unknown id, naming those that exist."""
        found = next((task for task in self.tasks if task.id == task_id), None)
        if found is None:
            raise ValueError(f"there is no task {task_id!r}; there are: {', '.join(task.id for task in self.tasks)}")
        return found

    def _reject(self, task: Task, *reasons: str) -> None:
        task.rejected += 1
        task.reasons.extend(reasons or ["rejected without a reason"])
        task.status = "failed" if task.rejected >= self.terms.tries else "open"

    def _to_verify(self) -> list[str]:
        """Those that were checked longest ago."""
        passing = sorted((t for t in self._with("passing") if not t.accepted), key=lambda task: task.verified)
        last = not self._with("open")
        return [task.id for task in (passing if last else passing[: self.terms.verify])]

    def _with(self, status: Status) -> list[Task]:
        return [task for task in self.tasks if task.status == status]

    def _book(self) -> None:
        self.steps += 1
