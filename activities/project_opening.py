"""The activity `project.open`: the input is read, the bundles pinned, the repository taken over."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.common import RawValue

from activities.boundaries import Boundary, find_boundary
from activities.handing import hand_over
from activities.heartbeats import heartbeats
from activities.manifest import Manifest
from activities.opening import starter
from activities.project_input import ProjectFork, ProjectInput, RoleNames, local_path, read_project
from activities.project_repository import branch_for, clone, whole
from activities.world import World
from workflows.catalog import PROJECT_OPEN
from workflows.keys import folder, safe_id, thread_name
from workflows.project_records import ProjectOpening, ProjectPoint, ProjectRequest, Roles
from workflows.records import Files, Limits, Workspace
from workflows.tasks import Rules


class ProjectOpenActivities:
    """Opens projects."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROJECT_OPEN.name)
    async def open(self, request: ProjectRequest, payload: RawValue) -> ProjectOpening:
        """Raises InvalidInput, UnknownBundle or BundleConflict; RepositoryUnavailable where a person can mend it."""
        async with heartbeats():
            wanted = read_project(request, payload)
            thread = thread_name(request.workflow_id, request.first_execution_run_id)
            begun = await self._new(wanted, thread) if wanted.fork is None else await self._fork(wanted.fork, thread)
            repository, held = begun.pop("repository"), begun.pop("roles")
            if wanted.repository is not None:
                repository = str(local_path(wanted.repository))
            target = f"perdure/{safe_id(request.workflow_id)}"
            if repository is not None:
                target = await asyncio.to_thread(branch_for, Path(repository), safe_id(request.workflow_id), thread)
            roles, manifest = await self._roles(wanted.bundles, held)
            file, rules, budget = manifest.file, manifest.file.project, wanted.budget
            return ProjectOpening(
                thread=thread,
                roles=roles,
                terms=Rules(tries=rules.tries, verify=rules.verify, grade=rules.grade, check=rules.check),
                limits=Limits(**budget.model_dump(include=set(Limits.model_fields))),
                budget_wait=file.budget.wait if budget.wait is None else budget.wait,
                repository=repository,
                target=target,
                requester=wanted.by or await starter(),
                search_attributes=self._world.has_search_attributes,
                notices=file.approvals.times(),
                history_events=file.limits.history_events,
                history_bytes=file.limits.history_bytes,
                **begun,
            )

    async def _new(self, wanted: ProjectInput, thread: str) -> dict[str, Any]:
        """What a project from a brief begins with."""
        body = {"role": "user", "text": wanted.brief}
        files = Files() if wanted.repository is None else await self._take(thread, local_path(wanted.repository))
        return {
            "brief": await self._world.entries.put(thread, body, wanted.brief or ""),
            "workspace": Workspace(thread=thread, files=files),
            "repository": None,
            "roles": None,
        }

    async def _fork(self, wanted: ProjectFork, thread: str) -> dict[str, Any]:
        """What a fork begins with: the brief, the tasks and the files of a boundary, as its own."""
        boundary = await self._pinned(wanted, thread)
        brief = await self._world.entries.get(boundary.thread, boundary.brief.sha256)
        files = await hand_over(self._world, boundary.workspace, thread)
        return {
            "brief": await self._world.entries.put(thread, brief, str(brief["text"])),
            "workspace": Workspace(thread=thread, files=files),
            "repository": boundary.repository,
            "roles": boundary.roles,
            "tasks": boundary.tasks,
            "commit": boundary.commit,
            "handoff": boundary.handoff,
            "parent": ProjectPoint(
                workflow_id=wanted.workflow_id,
                thread=boundary.thread,
                boundary=boundary.number,
                commit=boundary.commit,
            ),
        }

    async def _pinned(self, wanted: ProjectFork, thread: str) -> Boundary:
        """The boundary, put on record, so that all attempts fork the same one."""
        store, key = self._world.store, f"{folder(thread)}/forked-project.json"
        held = await Boundary.find(store, key)
        if held is not None:
            return held
        return await (await find_boundary(store, wanted.workflow_id, wanted.boundary, wanted.branch)).put(store, key)

    async def _roles(self, names: RoleNames | None, held: Roles | None) -> tuple[Roles, Manifest]:
        """The bundles: those that are named, else those that a fork's source had; and the coder's manifest."""
        if names is None and held is not None:
            return held, await self._world.bundles.manifest(held.coder.digest)
        names = names or RoleNames()
        pin, specs = self._world.bundles.pin, self._world.specs
        initializer, _ = await pin(names.initializer, specs)
        coder, manifest = await pin(names.coder, specs)
        evaluator, _ = await pin(names.evaluator, specs)
        return Roles(initializer=initializer, coder=coder, evaluator=evaluator), manifest

    async def _take(self, thread: str, source: Path) -> Files:
        """A clone as the project's own workspace. An attempt that was killed left a part of one."""
        root = self._world.workspaces.path(thread)
        await asyncio.to_thread(_empty, root)
        await asyncio.to_thread(clone, source, root)
        taken = await self._world.workspaces.snapshot(thread, Files(), "open")
        whole(taken)
        return Files() if taken.change is None else Files().plus(taken.change)


def _empty(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
