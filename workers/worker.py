"""The worker process: workflows and model turns on one task queue, tools on another, so that they scale apart."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.asking import AskActivities
from activities.closing import CloseActivities, ProbeActivities
from activities.compensation import CompensationActivities
from activities.execution import ToolActivities
from activities.opening import OpenActivities
from activities.store import open_store
from activities.tools import load_tools
from activities.tools.executor import Executor
from activities.turn import TurnActivities
from activities.world import World
from workers.settings import Settings
from workflows.agent_run import AgentRun
from workflows.catalog import TOOLS_QUEUE_SUFFIX
from workflows.fallback import UnknownWorkflow

Queues = Literal["all", "agents", "tools"]
DEPLOYMENT = "perdure"
SEARCH_ATTRIBUTES = {
    "PerdureStatus": "Keyword",
    "PerdureWaitingOn": "KeywordList",
    "PerdureBundle": "Keyword",
    "PerdureTurn": "Int",
    "PerdureCost": "Double",
    "PerdureParent": "Keyword",
}
PASSED_THROUGH = (
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions",
    "workflows.records",
    "workflows.effect_record",
    "workflows.undoing_records",
    "workflows.messages",
    "workflows.requests",
    "workflows.state",
    "workflows.display",
    "workflows.keys",
)
"""Pure modules, loaded once instead of at every start of a run. Lint keeps clocks and randomness out of them."""

GRACE = timedelta(seconds=20)
TOOL_THREADS = 32


@dataclass(frozen=True)
class Slots:
    """How much runs at once in one process."""

    activities: int = 100
    tools: int = 50
    local: int = 50
    workflow_tasks: int = 50
    cached_runs: int = 1000


async def make_world(client: Client, settings: Settings) -> World:
    """The world of this worker: store, tools, bundles, model servers."""
    return World(
        open_store(settings.store),
        load_tools(settings.tool_modules),
        Executor(threads=TOOL_THREADS),
        settings.lookup,
        bundle_folders=settings.bundle_folders,
        workspaces=settings.workspaces,
        credentials=settings.credentials,
        secrets=settings.secrets(),
        private_hosts=settings.private_hosts,
        build_id=settings.build_id,
        has_search_attributes=not await missing_search_attributes(client),
    )


async def missing_search_attributes(client: Client) -> list[str]:
    """The search attributes that the namespace lacks; all of them where it does not tell."""
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=timedelta(seconds=5)
        )
    except RPCError:
        return list(SEARCH_ATTRIBUTES)
    return [name for name in SEARCH_ATTRIBUTES if name not in answer.custom_attributes]


def make_workers(
    client: Client, world: World, settings: Settings, queues: Queues = "all", slots: Slots = Slots(), **options: Any
) -> list[Worker]:
    """The workers of one process, not yet running."""
    tools, undoing = ToolActivities(world), CompensationActivities(world)
    workers = []
    common: dict[str, Any] = {"graceful_shutdown_timeout": GRACE, "deployment_config": _deployment(settings), **options}
    if queues in ("all", "agents"):
        activities: Sequence[Callable[..., Any]] = [
            OpenActivities(world).open,
            TurnActivities(world).turn,
            AskActivities(world).judge,
            ProbeActivities(world).probe,
            tools.read,
        ]
        workers.append(
            Worker(
                client,
                task_queue=settings.task_queue,
                workflows=[AgentRun, UnknownWorkflow],
                activities=activities,
                workflow_runner=workflow_runner(),
                max_concurrent_activities=slots.activities,
                max_concurrent_local_activities=slots.local,
                max_concurrent_workflow_tasks=slots.workflow_tasks,
                **{"max_cached_workflows": slots.cached_runs, **common},
            )
        )
    if queues in ("all", "tools"):
        workers.append(
            Worker(
                client,
                task_queue=settings.task_queue + TOOLS_QUEUE_SUFFIX,
                activities=[tools.run, tools.doubt, undoing.plan, undoing.undo, CloseActivities(world).close],
                max_concurrent_activities=slots.tools,
                **{k: v for k, v in common.items() if k != "max_cached_workflows"},
            )
        )
    return workers


def workflow_runner() -> SandboxedWorkflowRunner:
    """The sandbox, with the pure modules passed through."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH))


def _deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=DEPLOYMENT, build_id=settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


async def run_until_signal(workers: Sequence[Worker], world: World) -> None:
    """Runs the workers until SIGTERM or SIGINT: polling stops at once, short work finishes, the rest is handed over."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows: KeyboardInterrupt does it
            break
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(worker.run()) for worker in workers]
        stopped = group.create_task(stop.wait())
        await asyncio.wait([stopped, *runs], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for worker in workers:
            group.create_task(worker.shutdown())
    await world.gateway.close()
    world.executor.close()
