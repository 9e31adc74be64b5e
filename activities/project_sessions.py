"""The activities `project.session` and `project.ended`: a session is started as a sub-agent is, and asked how it ended.

Its name is made of the project's thread and the number of the session, so an attempt that comes again, and a project
that was reset, finds the one that is there. After a reset another request may come under a number that is taken; it
gets a name of the new branch.
"""

from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.canonical import digest
from activities.children import end_of, short, start_child
from activities.errors import cut
from activities.project_goals import GRADE_SCHEMA, goal_of
from activities.tools.errors import ToolError
from activities.world import World
from workflows.catalog import PROJECT_ENDED, PROJECT_SESSION
from workflows.child_records import ChildStart
from workflows.keys import child_id
from workflows.lineage import Child, Parent
from workflows.project_records import Grade, SessionEnd, SessionEndRequest, SessionRequest
from workflows.records import Workspace

SAID_BYTES = 4000
TASK = "Task"
"""The trailer by which the commits of a task are found."""
DEPTH = 10
"""Levels of sub-agents below a session: as many as its bundle allows."""


class SessionActivities:
    """Starts sessions and takes their ends."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=PROJECT_SESSION.name)
    async def start(self, request: SessionRequest) -> Child:
        """The session: started, or found."""
        brief = str((await self._world.entries.get(request.thread, request.brief.sha256))["text"])
        name = child_id(f"{request.thread}:s{request.number}:{request.role}")
        client, queue = activity.client(), str(activity.info().task_queue)
        attributes = self._world.has_search_attributes
        try:
            return await start_child(client, _wanted(request, brief, name), queue, attributes)
        except ToolError:
            other = _wanted(request, brief, f"{name}-{request.branch}")
            return await start_child(client, other, queue, attributes)

    @activity.defn(name=PROJECT_ENDED.name)
    async def ended(self, request: SessionEndRequest) -> SessionEnd:
        """How the session ended. Fails while it has not."""
        ended = await end_of(activity.client(), request.child, request.last)
        left = ended.result.get("workspace")
        said = ended.result.get("output") or ended.result.get("reason") or ended.said
        return SessionEnd(
            status=ended.status,
            said=cut(self._world.redact(str(said)), SAID_BYTES),
            workspace=None if left is None else Workspace.model_validate(left),
            grade=grade_of(short(ended.result.get("structured"))) if request.role == "evaluator" else None,
            used=ended.used,
            usage=ended.usage,
        )


def _wanted(request: SessionRequest, brief: str, name: str) -> ChildStart:
    project = str(activity.info().workflow_id)
    given: dict[str, Any] = {
        "goal": goal_of(request, brief),
        "bundle": f"{request.bundle.name}@{request.bundle.version}",
        "bundle_digest": request.bundle.digest,
        "budget": {**request.grant.model_dump(exclude_none=True), "wait": 0},
        "workspace": request.workspace.model_dump(mode="json"),
    }
    if request.role == "coder" and request.task is not None:
        given["trailers"] = {TASK: request.task.id}
    if request.role == "evaluator":
        given["output_schema"] = GRADE_SCHEMA
    if request.requester:
        given["by"] = request.requester
    parent = Parent(workflow_id=project, run=request.run, depth_left=DEPTH)
    return ChildStart(child=name, given=given, parent=parent, asked=_asked(request, project))


def _asked(request: SessionRequest, project: str) -> str:
    """What makes two sessions the same one: all that it is told of, in whatever words; not what there is to spend."""
    told = request.model_dump(mode="json", exclude_defaults=True, exclude={"branch", "grant", "requester"})
    return digest([project, told])


def grade_of(structured: Any) -> Grade | None:
    """What counts of the evaluator's answer. A pass with a criterion that is not met is none."""
    try:
        grade = Grade.model_validate(structured)
    except ValidationError:
        return None
    unmet = [each for each in structured.get("criteria", []) if isinstance(each, dict) and each.get("met") is False]
    if grade.passing and unmet:
        reasons = [f"not met: {each.get('criterion')} ({each.get('evidence')})" for each in unmet]
        return Grade(passing=False, reasons=[*grade.reasons, *reasons])
    return grade
