"""The boundaries of a project's tasks, as the store keeps them: from each a fork of the project can begin.

A boundary is written when the list of tasks was committed, beside the files as they stood then. After a reset the same
number may come again with other content: the branch is in the name.
"""

import re

from pydantic import Field

from activities.errors import InvalidInput
from activities.origin import PutOnce
from activities.store import Store
from workflows.keys import folder, safe_id
from workflows.project_records import KeepRequest, Kept, Roles
from workflows.records import Ref, Workspace
from workflows.tasks import Task

_NAME = re.compile(r"boundaries/(\d{8})-([0-9a-f]{8})\.json$")


class Boundary(PutOnce):
    """Where a project stood between two tasks. `handoff`: what the last session had said."""

    thread: str
    number: int
    branch: str
    brief: Ref
    roles: Roles
    tasks: list[Task] = Field(default_factory=list)
    workspace: Workspace
    commit: str | None = None
    handoff: str = ""
    repository: str | None = None
    at: str = ""


async def put_boundary(store: Store, request: KeepRequest, kept: Kept, at: str) -> None:
    """Writes the boundary of a list of tasks that was committed."""
    if request.brief is None or request.roles is None:
        return  # asked for by a project of a release that had none
    boundary = Boundary(
        thread=request.thread,
        number=request.number,
        branch=request.branch,
        brief=request.brief,
        roles=request.roles,
        tasks=request.tasks,
        workspace=kept.workspace,
        commit=kept.commit,
        handoff=request.handoff,
        repository=request.repository,
        at=at,
    )
    await boundary.put(store, f"{folder(request.thread)}/boundaries/{request.number:08d}-{request.branch}.json")


async def find_boundary(store: Store, project: str, number: int, branch: str | None = None) -> Boundary:
    """The boundary of that number, the one that was written last where there are several. Raises InvalidInput, which
    names those there are, and CheckpointDamaged."""
    found: list[Boundary] = []
    numbers = set[int]()
    for key, each, made in await _listed(store, project):
        numbers.add(each)
        if each == number and branch in (None, made) and (read := await Boundary.find(store, key)) is not None:
            found.append(read)
    if not found:
        there = ", ".join(map(str, sorted(numbers))) or "none (is it a project, and planned?)"
        raise InvalidInput(f"fork: {project!r} has no boundary {number}; there are: {there}")
    return max(found, key=lambda boundary: boundary.at)


async def _listed(store: Store, project: str) -> list[tuple[str, int, str]]:
    """Key, number and branch of every boundary of `<workflow id>` or `<workflow id>.<start>`."""
    for workflow_id, _, start in ((project, "", ""), project.rpartition(".")):
        if not workflow_id:
            continue
        top = f"threads/{safe_id(workflow_id)}" + (f"/{start}" if start else "")
        names = [(key, _NAME.search(key)) for key in await store.keys(top)]
        if listed := [(key, int(name[1]), name[2]) for key, name in names if name is not None]:
            return listed
    return []
