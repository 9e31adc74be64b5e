"""The worker process: workflows and model turns on one task queue, tools on another, so that they scale apart."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig
from temporalio.worker._workflow_instance import WorkflowInstance, WorkflowInstanceDetails

from activities.asking import AskActivities
from activities.children import ChildActivities
from activities.closing import CloseActivities, ProbeActivities
from activities.compensation import CompensationActivities
from activities.editing import EditActivities
from activities.execution import ToolActivities
from activities.forking import ForkActivities
from activities.handoff import HandoffActivities
from activities.notices import NoticeActivities
from activities.opening import OpenActivities
from activities.project_checks import CheckActivities
from activities.project_opening import ProjectOpenActivities
from activities.project_repository import KeepActivities
from activities.project_sessions import SessionActivities
from activities.spent import SpentActivities
from activities.store import open_store
from activities.tools import load_tools, sandbox
from activities.tools.executor import Executor
from activities.turn import TurnActivities
from activities.upgrading import UpgradeActivities
from activities.world import World
from workers.attributes import BUNDLE_DIGEST, missing_search_attributes
from workers.endings import settling
from workers.life import finishing_time
from workers.misfits import NoMisfits
from workers.settings import Settings
from workflows.agent_run import AgentRun
from workflows.catalog import TOOLS_QUEUE_SUFFIX
from workflows.fallback import UnknownWorkflow
from workflows.project_run import ProjectRun

Queues = Literal["all", "agents", "tools"]
DEPLOYMENT = "perdure"
WORKFLOWS = [AgentRun, ProjectRun, UnknownWorkflow]


LONGEST_TASK = 8
"""Seconds until a workflow task counts as stuck; the SDK's own 2 are not enough for the 10,000 signals that the server
takes for one execution, and the server gives a task 10."""


async def make_world(client: Client, settings: Settings) -> World:
    """The world of this worker: store, tools, bundles, model servers."""
    await asyncio.to_thread(sandbox.problem)  # tried here, so that no turn waits for it
    missing = await missing_search_attributes(client)
    return World(
        open_store(settings.store),
        load_tools(settings.tool_modules),
        Executor(threads=settings.slots.tools + settings.slots.local),
        settings.lookup,
        bundle_folders=settings.bundle_folders,
        workspaces=settings.workspaces,
        credentials=settings.credentials,
        secrets=settings.secrets(),
        private_hosts=settings.private_hosts,
        build_id=settings.build_id,
        has_search_attributes=not {*missing} - {BUNDLE_DIGEST},
        shows_digest=not missing,
    )


def make_workers(
    client: Client,
    world: World,
    settings: Settings,
    queues: Queues = "all",
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> list[Worker]:
    """The workers of one process, not yet running."""
    slots = settings.slots
    tools, undoing = ToolActivities(world), CompensationActivities(world)
    children, sessions, checks = ChildActivities(world), SessionActivities(world), CheckActivities(world)
    workers = []
    common: dict[str, Any] = {
        "graceful_shutdown_timeout": timedelta(seconds=finishing_time(settings.grace)),
        "deployment_config": _deployment(settings),
        "interceptors": [NoMisfits(), *interceptors],
        **options,
    }
    if queues in ("all", "agents"):
        activities: Sequence[Callable[..., Any]] = [
            OpenActivities(world).open,
            ForkActivities(world).fork,
            EditActivities(world).edit,
            TurnActivities(world).turn,
            AskActivities(world).judge,
            ProbeActivities(world).probe,
            SpentActivities(world).spent,
            HandoffActivities(world).hand_off,
            UpgradeActivities(world).upgrade,
            tools.read,
            *(children.watch, children.end, children.watch_parent),
            *(sessions.start, sessions.ended, checks.plan),
        ]
        workers.append(
            Worker(
                client,
                task_queue=settings.task_queue,
                workflows=WORKFLOWS,
                activities=activities,
                workflow_runner=PlainRunner(),
                max_concurrent_activities=slots.agents,
                max_task_queue_activities_per_second=slots.agents_per_second,
                max_concurrent_local_activities=slots.local,
                max_concurrent_workflow_tasks=slots.workflow_tasks,
                **{"max_cached_workflows": slots.cached_runs, **common},
            )
        )
        inner: Any = workers[0]._workflow_worker
        if inner._deadlock_timeout_seconds is not None:  # a debugger has none; there is no option for it
            inner._deadlock_timeout_seconds = LONGEST_TASK
    if queues in ("all", "tools"):
        workers.append(
            Worker(
                client,
                task_queue=settings.task_queue + TOOLS_QUEUE_SUFFIX,
                activities=[
                    *(tools.run, tools.doubt, undoing.plan, undoing.undo),
                    *(CloseActivities(world).close, NoticeActivities(world).notify),
                    *(ProjectOpenActivities(world).open, checks.check, KeepActivities(world).keep),
                ],
                max_concurrent_activities=slots.tools,
                max_task_queue_activities_per_second=slots.tools_per_second,
                **{k: v for k, v in common.items() if k != "max_cached_workflows"},
            )
        )
    return workers


def queues_of(settings: Settings, queues: Queues = "all") -> dict[str, int]:
    """The task queues that a worker serves, and how many activities of each it runs at once."""
    found = {}
    if queues in ("all", "agents"):
        found[settings.task_queue] = settings.slots.agents
    if queues in ("all", "tools"):
        found[settings.task_queue + TOOLS_QUEUE_SUFFIX] = settings.slots.tools
    return found


class PlainRunner(UnsandboxedWorkflowRunner):
    """Runs workflow code as it is loaded, once for all runs.

    The sandbox would import it anew for each run, and keep that copy for as long as the run is cached, to guard what
    nobody but us writes: lint, and a replay of every recorded history inside the sandbox, guard it before it is
    released (see docs/decisions/0012). Instances settle what is said of their end, and answer no question for the
    context in which a converter is to work: ours take none.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance of one execution."""
        instance = super().create_instance(det)
        setattr(instance, "get_serialization_context", lambda _: None)  # noqa: B010, the instance's own, not its class's
        return settling(instance)


def _deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=DEPLOYMENT, build_id=settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )
