"""The repository of a project: taken over at the opening, its list of tasks kept, and delivered.

In the workspace git runs isolated, since its configuration is the agents' to write. In the repository of the user it
runs as the worker, and takes no more from the workspace than a bundle file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from pathlib import Path

from temporalio import activity

from activities.boundaries import put_boundary
from activities.checkpoints import now_iso
from activities.errors import NotIsolated, RepositoryUnavailable
from activities.handing import hand_over
from activities.heartbeats import heartbeats
from activities.tools import git, sandbox
from activities.tools.confined import folder, replace
from activities.tools.errors import ToolError, ToolTimeout
from activities.tools.operation import Operation
from activities.workspaces import MOST_BYTES, Snapshot
from activities.world import World
from workflows.catalog import PROJECT_KEEP
from workflows.keys import operation_id
from workflows.project_records import KeepRequest, Kept
from workflows.records import Workspace
from workflows.tasks import Task

TASKS = "tasks.json"
PARCEL = ".git/perdure-parcel"
SECONDS = 300


class KeepActivities:
    """Writes the list of tasks, commits it, and delivers the repository."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROJECT_KEEP.name)
    async def keep(self, request: KeepRequest) -> Kept:
        """Brings the project's own workspace to the given files, and goes on from there. The same again commits
        nothing. Raises NotIsolated, WorkspaceUnavailable, RepositoryUnavailable."""
        async with heartbeats():
            world, thread, at = self._world, request.thread, f"keep-{request.number}"
            files = await hand_over(world, request.workspace, thread)
            await world.workspaces.restore(thread, files, at)
            op = operation(thread, f"tasks.json:{request.number}", world.workspaces.path(thread))
            commit = await asyncio.to_thread(_keep, op, request)
            taken = await world.workspaces.snapshot(thread, files, at)
            whole(taken)
            files = files if taken.change is None else files.plus(taken.change)
            if request.repository is not None:
                await asyncio.to_thread(deliver, op, Path(request.repository), request.target)
            kept = Kept(workspace=Workspace(thread=thread, files=files), commit=commit)
            await put_boundary(world.store, request, kept, now_iso())
            return kept


def operation(thread: str, name: str, root: Path) -> Operation:
    """What the project itself runs commands by. Raises NotIsolated where they would not be apart."""
    if (why := sandbox.problem()) is not None:
        raise NotIsolated(f"commands are not isolated on this worker: {why}")
    tool, _, number = name.partition(":")
    return Operation(
        operation_id=operation_id(thread, tool, int(number or 0)), tool=tool, thread=thread, workspace=root
    )


def tasks_file(tasks: list[Task]) -> str:
    """The list as the repository holds it."""
    listed = [task.model_dump(include={"id", "title", "status", "acceptance", "checks"}) for task in tasks]
    return json.dumps({"tasks": listed}, ensure_ascii=False, indent=1) + "\n"


def _keep(op: Operation, request: KeepRequest) -> str | None:
    """Commits the list, once; gives where the repository stands."""
    try:
        with folder(op.workspace, []) as root:
            replace(root, TASKS, tasks_file(request.tasks).encode(), ".perdure-tasks.tmp")
        git.unlock(op)
        _commit(op, request)
        return head(op)
    except ToolTimeout as error:
        raise RepositoryUnavailable(f"git did not end in the workspace: {error}") from None
    except (ToolError, OSError) as error:
        raise RepositoryUnavailable(f"the list of tasks cannot be committed: {error}") from None


def _commit(op: Operation, request: KeepRequest) -> None:
    """By git's own parts: neither the index that agents left, nor their hooks or filters, have a say in the list."""
    if not git.is_repository(op):
        git.run_git(op, "init", "--quiet", "--initial-branch=main", write=True)
    before = head(op)
    _git(op, "read-tree", *(["HEAD"] if before else ["--empty"]))
    if request.everything:
        _git(op, "add", "--all", "--", ".")
    blob = _git(op, "hash-object", "-w", "--no-filters", "--", TASKS)
    _git(op, "update-index", "--add", "--replace", "--cacheinfo", f"100644,{blob},{TASKS}")
    tree = _git(op, "write-tree")
    if before is not None and tree == _git(op, "rev-parse", "HEAD^{tree}"):
        return
    passing = sum(task.status == "passing" for task in request.tasks)
    text = f"tasks.json: {passing} of {len(request.tasks)} pass\n\n{git.TRAILER}: {op.operation_id}"
    commit = _git(op, "commit-tree", tree, *(["-p", before] if before else []), "-m", text)
    _git(op, "update-ref", "HEAD", commit)


def _git(op: Operation, *arguments: str) -> str:
    """The last word that git says. Raises ToolError and ToolTimeout."""
    said = git.run_git(op, *arguments, write=True, plain=True).said.split()
    return said[-1] if said else ""


def head(op: Operation) -> str | None:
    """The commit that the repository of the workspace stands at."""
    ran = git.run_git(op, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False, plain=True)
    return ran.said.strip() if ran.code == 0 else None


def branch_for(repository: Path, project: str, thread: str) -> str:
    """The branch to deliver to: `perdure/<project>`, which an earlier project of that workflow id may have left; then
    with the start of this one. Raises RepositoryUnavailable."""
    name = f"perdure/{project}"
    if not _trusted(repository, "for-each-ref", "--format=%(refname)", f"refs/heads/{name}").strip():
        return name
    own = f"--grep={git.TRAILER}: {thread}:"
    mine = _trusted(repository, "log", "--max-count=1", "--format=%H", "--fixed-strings", own, f"refs/heads/{name}")
    return name if mine.strip() else f"{name}-{thread.rpartition('.')[2]}"


def clone(source: Path, target: Path) -> None:
    """Clones a user's repository into an empty folder. Raises RepositoryUnavailable."""
    _trusted(
        source, "clone", "--quiet", "--no-hardlinks", "--dissociate", "--template=", "--", str(source), str(target)
    )
    _trusted(target, "remote", "remove", "origin")


def deliver(op: Operation, repository: Path, target: str) -> None:
    """Brings the commits of the workspace to a branch of the user's repository. Raises RepositoryUnavailable."""
    parcel = op.workspace / PARCEL
    try:
        git.run_git(op, "bundle", "create", "--quiet", PARCEL, "HEAD", write=True, plain=True)
        if parcel.is_symlink():
            raise RepositoryUnavailable(f"{PARCEL} is a link")
        quietly = ("--quiet", "--no-tags", "--no-write-fetch-head")
        _trusted(repository, "fetch", *quietly, "--", str(parcel), f"+HEAD:refs/heads/{target}")
    except (ToolError, ToolTimeout) as error:
        raise RepositoryUnavailable(f"the commits cannot be packed: {error}") from None
    finally:
        with contextlib.suppress(OSError):  # a parcel that is left is overwritten by the next one
            parcel.unlink(missing_ok=True)


def whole(taken: Snapshot) -> None:
    """Raises RepositoryUnavailable where a file of the repository itself is too large to be kept: without it, it is
    broken on every other machine."""
    if lost := [path for path in taken.too_large if path.startswith(".git/")]:
        raise RepositoryUnavailable(
            f"{lost[0]} is larger than {MOST_BYTES // 10**6} MB, which is not kept: repack the repository into smaller"
            " packs (git repack -a -d --max-pack-size=90m), or give one with less history"
        )


def _trusted(where: Path, *arguments: str) -> str:
    """What git says, run as the worker in a folder that no agent writes to, or has not written to yet."""
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    if not where.is_dir():
        raise RepositoryUnavailable(f"there is no folder {where} on this worker")
    settings = ("safe.directory=*", f"core.hooksPath={os.devnull}", "gc.auto=0", "maintenance.auto=false")
    command = ["git", *(part for each in settings for part in ("-c", each)), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=where,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RepositoryUnavailable(f"git {arguments[0]} in {where}: {type(error).__name__}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-1000:]
        raise RepositoryUnavailable(f"git {arguments[0]} in {where}: {said}")
    return done.stdout.decode("utf-8", "replace")
