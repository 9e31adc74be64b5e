"""The activities `project.check` and `project.plan`: what passes by its commands, and what the initializer planned."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from temporalio import activity

from activities.errors import RepositoryUnavailable
from activities.heartbeats import heartbeats
from activities.project_repository import TASKS, head, operation
from activities.tools import git
from activities.tools.commands import run
from activities.tools.errors import ToolError, ToolTimeout
from activities.tools.operation import Operation
from activities.tools.sandbox import Place, place_of
from activities.world import World
from workflows.catalog import PROJECT_CHECK, PROJECT_PLAN
from workflows.messages import explain
from workflows.project_records import Checked, CheckRequest, Plan, PlanRequest
from workflows.strict_json import loads
from workflows.tasks import Task

SHOWN = 1200
"""Characters of a command's output that a reason holds: how it ends says why it failed."""

PLAN_BYTES = 200_000
"""The longest `tasks.json`: a project carries it, and tells it."""

Line = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


Command = Annotated[list[Line], Field(min_length=1, max_length=50)]


class PlannedTask(BaseModel):
    """One task of `tasks.json`, as the initializer writes it."""

    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    acceptance: Annotated[list[Line], Field(min_length=1, max_length=30)]
    checks: Annotated[list[Command], Field(min_length=1, max_length=9)]


class PlannedTasks(BaseModel):
    """All of `tasks.json`."""

    model_config = ConfigDict(extra="ignore")

    tasks: Annotated[list[PlannedTask], Field(min_length=1, max_length=50)]


class CheckActivities:
    """Looks at the files of a project, and changes none."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROJECT_CHECK.name)
    async def check(self, request: CheckRequest) -> Checked:
        """Runs the commands in a copy of the files, isolated and without a network. Raises NotIsolated and
        WorkspaceUnavailable."""
        async with heartbeats():
            manifest = await self._world.bundles.manifest(request.bundle)
            info, spaces = activity.info(), self._world.workspaces
            root = spaces.scratch(f"{request.thread}-{info.activity_id}-{info.attempt}")
            try:
                await asyncio.to_thread(_fresh, root, request.thread)
                await spaces.lay_out(request.workspace.thread, request.workspace.files, root)
                op = operation(request.thread, "check", root)
                place = place_of(manifest.file.options.get("shell", {})).model_copy(update={"network": False})
                return await asyncio.to_thread(checked, op, request, place)
            finally:
                await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    @activity.defn(name=PROJECT_PLAN.name)
    async def plan(self, request: PlanRequest) -> Plan:
        """Reads `tasks.json`. Raises WorkspaceUnavailable."""
        where, spaces = request.workspace, self._world.workspaces
        listing = await spaces.listing(where.thread, where.files)
        for name in ("spec.md", TASKS):
            if name not in listing or listing[name].sha256 is None:
                return Plan(refused=f"there is no file {name} in the workspace")
        if listing[TASKS].bytes > PLAN_BYTES:
            return Plan(refused=f"{TASKS} is longer than {PLAN_BYTES} bytes: say less, or plan fewer tasks")
        try:
            return Plan(tasks=planned((await spaces.content(where.thread, listing[TASKS])).decode("utf-8")))
        except ValidationError as error:
            return Plan(refused=f"{TASKS}: {explain(error)}")
        except ValueError as error:
            return Plan(refused=f"{TASKS}: {error}")


def planned(text: str) -> list[Task]:
    """The tasks of a file. Raises ValueError that says what is wrong."""
    found = PlannedTasks.model_validate(loads(text))
    return [Task(**each.model_dump()) for each in found.tasks]


def checked(op: Operation, request: CheckRequest, place: Place) -> Checked:
    """What does not pass, and why."""
    commit = None
    broken: dict[str, str] = {}
    try:
        if git.is_repository(op):
            commit = head(op)
        loose = _loose(op) if request.finished and commit else ""
        unfit = _unfit(op, request.since, commit)
    except (ToolError, ToolTimeout) as error:
        if request.since is None:  # the project's own files
            raise RepositoryUnavailable(f"git does not answer in a copy of the workspace: {error}") from None
        loose, unfit = "", f"the repository that the session left cannot be used: {error}"[:SHOWN]
    for task in request.tasks:
        why = _why(op, task, place, request.seconds)
        if why is None and request.finished:
            why = "nothing is committed" if commit is None else loose or None
        if why is not None:
            broken[task.id] = why
    return Checked(broken=broken, commit=commit, unfit=unfit)


def _why(op: Operation, task: Task, place: Place, seconds: float) -> str | None:
    """The first command that fails, and how it ended."""
    for argv in task.checks:
        shown = json.dumps(argv, ensure_ascii=False)
        try:
            ran = run(op, argv, seconds, place=place)
        except ToolError as error:
            return f"{shown}: {error}"
        if ran.code != 0:
            ended = f"was killed after {seconds:g} s" if ran.code is None else f"ended with exit code {ran.code}"
            return f"{shown} {ended}: …{ran.said.strip()[-SHOWN:]}"
    return None


def _unfit(op: Operation, since: str | None, commit: str | None) -> str:
    """How the history that the session was given has been bent."""
    if since is None:
        return ""
    for name, fits in ((".git", Path.is_dir), (TASKS, Path.is_file)):
        if (place := op.workspace / name).is_symlink() or (place.exists() and not fits(place)):
            return f"{name} is not a plain {'folder' if name == '.git' else 'file'} any more. Leave it where it was"
    kept = commit and git.run_git(op, "merge-base", "--is-ancestor", since, "HEAD", check=False, plain=True).code == 0
    if not kept:
        return f"history was rewritten: {since[:12]}, which the session began with, is not below HEAD. Only add commits"
    if git.run_git(op, "rev-list", "--min-parents=2", "--max-count=1", f"{since}..HEAD", plain=True).said.strip():
        return "a merge was committed; the history of a project is one line. Only add plain commits"
    whole = git.run_git(op, "fsck", "--connectivity-only", "--no-dangling", "--no-progress", check=False, plain=True)
    return f"objects of the repository are missing: {whole.said.strip()[:SHOWN]}" if whole.code else ""


def _loose(op: Operation) -> str:
    """What is not committed, apart from the project's own file: by an index made anew, in which no file is taken for
    unchanged."""
    git.run_git(op, "read-tree", "HEAD", write=True, plain=True)
    said = git.run_git(op, "status", "--porcelain", "--", ".", f":(exclude){TASKS}", plain=True).said.strip()
    return f"not everything is committed: {said[:SHOWN]}" if said else ""


def _fresh(root: Path, thread: str) -> None:
    """An empty folder; what earlier attempts of a project left behind, whose worker was killed, goes."""
    root.parent.mkdir(parents=True, exist_ok=True)
    for left in root.parent.glob(f"{thread}-*"):
        with contextlib.suppress(OSError):
            shutil.rmtree(left)
    root.mkdir()
