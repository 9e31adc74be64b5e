"""The records of a project's activities: promises, as those in `records`."""

from typing import Any, Literal

from pydantic import Field

from workflows.lineage import Child, Limits
from workflows.records import BundleRef, Record, Ref, Usage, Workspace
from workflows.tasks import Rules, Task

Role = Literal["initializer", "coder", "evaluator"]


class Roles(Record):
    """The bundles of a project, pinned."""

    initializer: BundleRef
    coder: BundleRef
    evaluator: BundleRef


class ProjectRequest(Record):
    """Input of `project.open`. The payloads travel beside it, undecoded."""

    workflow_id: str
    first_execution_run_id: str
    payloads: int
    cron: bool


class ProjectPoint(Record):
    """Where a fork of a project began: the project, its thread, the number of the boundary, and the commit there."""

    workflow_id: str
    thread: str
    boundary: int
    commit: str | None = None


class ProjectOpening(Record):
    """What the opening decided. `brief`: the body that holds it. `repository`: the path that the project began from
    and is delivered to; `target`: the branch there. Of a fork `parent` is where it began, `tasks`, `commit` and
    `handoff` how it stood there. `notices`: when people are told of what it asks, in seconds from then."""

    thread: str
    brief: Ref
    roles: Roles
    terms: Rules
    limits: Limits
    budget_wait: float
    workspace: Workspace
    repository: str | None = None
    target: str = ""
    requester: str | None = None
    search_attributes: bool = False
    history_events: int = 4000
    history_bytes: int = 4_000_000
    parent: ProjectPoint | None = None
    tasks: list[Task] = Field(default_factory=list)
    commit: str | None = None
    handoff: str = ""
    notices: list[float] = Field(default_factory=list)


class Said(Record):
    """What a person said to the project."""

    text: str
    by: str


class SessionRequest(Record):
    """Input of `project.session`: who is to do what, with which files. `refused`: why the last plan or grade could not
    be used; `passing`: the tasks that must not break; `handoff`: what the last session said at its end. `run`: the run
    id of the project's first execution."""

    thread: str
    branch: str
    number: int
    role: Role
    bundle: BundleRef
    workspace: Workspace
    grant: Limits = Limits()
    run: str
    brief: Ref
    task: Task | None = None
    passing: list[Task] = Field(default_factory=list)
    refused: str = ""
    handoff: str = ""
    said: list[Said] = Field(default_factory=list)
    requester: str | None = None


class SessionEndRequest(Record):
    """Input of `project.ended`. `last`: what the session said last of what it has used."""

    child: Child
    role: Role
    last: dict[str, float] = Field(default_factory=dict)


class Grade(Record):
    """The evaluator's word on one task."""

    passing: bool
    reasons: list[str] = Field(default_factory=list)


class SessionEnd(Record):
    """Output of `project.ended`. `said`: its last answer, or why there is none, cut. `workspace`: the files that it
    left; None where it has no result. `grade`: the evaluator's word; None where there is none."""

    status: str
    said: str = ""
    workspace: Workspace | None = None
    grade: Grade | None = None
    used: dict[str, float] = Field(default_factory=dict)
    usage: Usage = Usage()


class PlanRequest(Record):
    """Input of `project.plan`: where the initializer left `tasks.json` and `spec.md`."""

    workspace: Workspace


class Plan(Record):
    """Output of `project.plan`: the tasks, or why they cannot be used."""

    tasks: list[Task] = Field(default_factory=list)
    refused: str = ""


class CheckRequest(Record):
    """Input of `project.check`: whose check commands to run on a copy of which files. `bundle`: the coder's, for what
    commands may read. `finished`: everything has to be committed, too. `since`: the commit a session began with."""

    thread: str
    workspace: Workspace
    tasks: list[Task]
    bundle: str
    seconds: float
    finished: bool = False
    since: str | None = None


class Checked(Record):
    """Output of `project.check`: of each task that does not pass, why. `commit`: where the repository stands. `unfit`:
    why the next session cannot go on from these files."""

    broken: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    unfit: str = ""


class KeepRequest(Record):
    """Input of `project.keep`: writes the list of tasks into the repository, commits it, and delivers. `everything`:
    commits all files, not that one alone. The others are kept with the boundary that this is."""

    thread: str
    number: int
    workspace: Workspace
    tasks: list[Task]
    everything: bool = False
    repository: str | None = None
    target: str = ""
    branch: str = ""
    brief: Ref | None = None
    roles: Roles | None = None
    handoff: str = ""


class Kept(Record):
    """Output of `project.keep`: the files after it, now in the project's own thread, and the commit."""

    workspace: Workspace
    commit: str | None = None


class SessionNote(Record):
    """One session that ended, as the query `handoffs` shows it. `passing`: what the evaluator said, or the checks.
    `boundary`: the last one before it, from which a fork does this again."""

    number: int
    role: Role
    run: str
    task: str | None = None
    status: str = ""
    said: str = ""
    commit: str | None = None
    passing: bool | None = None
    reasons: list[str] = Field(default_factory=list)
    at: str = ""
    boundary: int = 0


class Entry(Record):
    """One line of a project's log: what a person, or the project, decided."""

    what: str
    by: str | None = None
    at: str = ""
    source: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""
