"""The activity `project.open`: the input is read, the bundles pinned, the repository taken over."""

import asyncio
import shutil
from pathlib import Path

from temporalio import activity
from temporalio.common import RawValue

from activities.execution import heartbeats
from activities.opening import starter
from activities.project_input import local_path, read_project
from activities.project_repository import clone
from activities.world import World
from workflows.catalog import PROJECT_OPEN
from workflows.keys import safe_id, thread_name
from workflows.project_records import ProjectOpening, ProjectRequest, Roles
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
            pin, specs = self._world.bundles.pin, self._world.specs
            initializer, _ = await pin(wanted.bundles.initializer, specs)
            coder, manifest = await pin(wanted.bundles.coder, specs)
            evaluator, _ = await pin(wanted.bundles.evaluator, specs)
            path = None if wanted.repository is None else local_path(wanted.repository)
            file, terms, budget = manifest.file, manifest.file.project, wanted.budget
            return ProjectOpening(
                thread=thread,
                brief=await self._world.entries.put(thread, {"role": "user", "text": wanted.brief}, wanted.brief),
                roles=Roles(initializer=initializer, coder=coder, evaluator=evaluator),
                terms=Rules(tries=terms.tries, verify=terms.verify, grade=terms.grade, check=terms.check),
                limits=Limits(**budget.model_dump(include=set(Limits.model_fields))),
                budget_wait=file.budget.wait if budget.wait is None else budget.wait,
                workspace=Workspace(thread=thread, files=Files() if path is None else await self._take(thread, path)),
                repository=None if path is None else str(path),
                target=f"perdure/{safe_id(request.workflow_id)}",
                requester=wanted.by or await starter(),
                search_attributes=self._world.has_search_attributes,
                history_events=file.limits.history_events,
                history_bytes=file.limits.history_bytes,
            )

    async def _take(self, thread: str, source: Path) -> Files:
        """A clone as the project's own workspace. An attempt that was killed left a part of one."""
        root = self._world.workspaces.path(thread)
        await asyncio.to_thread(_empty, root)
        await asyncio.to_thread(clone, source, root)
        taken = await self._world.workspaces.snapshot(thread, Files(), "open")
        return Files() if taken.change is None else Files().plus(taken.change)


def _empty(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
