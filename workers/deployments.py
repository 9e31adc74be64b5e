"""The versions of the worker deployment: which is current, which drain, and who serves what.

A run is pinned to the version that began its execution; a rollover moves it to the current one.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import TaskQueueType, WorkerDeploymentVersionStatus, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentVersionRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workers.causes import Kind, Seen
from workers.open_runs import Queues
from workers.settings import Settings, SettingsError
from workers.worker import DEPLOYMENT
from workflows.catalog import TOOLS_QUEUE_SUFFIX

_LOG = logging.getLogger(__name__)
SET_CURRENT = f"temporal worker deployment set-current-version --deployment-name {DEPLOYMENT}"
IDLE = ("", "waiting", "paused", "parked")
"""States in which a run hears of a new version only by a message. The empty one: nobody knows."""


@dataclass(frozen=True)
class Version:
    """A build, what Temporal says of it, its open runs, and the workers that poll for it. The empty build: runs and
    workers without versions."""

    build: str
    status: str
    runs: int
    workers: int


async def current_build(client: Client) -> str | None:
    """The current build; empty where unversioned workers get the work, None where the deployment is not known."""
    info = await _described(client)
    return None if info is None else str(info.routing_config.current_deployment_version.build_id)


async def versions(client: Client, settings: Settings, open_runs: Iterable[Seen]) -> list[Version]:
    """Every build that has runs or workers or is known to Temporal, the current one first."""
    info, counts = await _described(client), Counter(seen.build for seen in open_runs)
    status: dict[str, str] = {}
    if info is not None:
        for one in info.version_summaries:
            name = WorkerDeploymentVersionStatus.Name(one.status).removeprefix("WORKER_DEPLOYMENT_VERSION_STATUS_")
            status[one.deployment_version.build_id] = name.lower()
    queues, queue = Queues(client), settings.task_queue
    await queues.look([queue])
    by_build = queues.builds(queue, "workflow")
    found = [
        Version(build, status.get(build, "unversioned" if not build else "unknown"), counts[build], by_build[build])
        for build in {*status, *counts, *by_build}
    ]
    return sorted(found, key=lambda one: (one.status != "current", not one.runs, one.build))


async def _described(client: Client):  # type: ignore[no-untyped-def]  # the SDK's message has no short name
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=DEPLOYMENT)
    try:
        return (await client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise


Polls = dict[str, dict[str, datetime]]
"""By task queue and worker, when its last poll began."""


async def polls(client: Client, settings: Settings, build: str) -> Polls:
    """The last polls of the build's workers on the two task queues of an installation. A worker that was killed is
    among them for a while; that one lives is certain when it has polled anew."""
    queues, queue = Queues(client), settings.task_queue
    await queues.look([queue])
    tools = queue + TOOLS_QUEUE_SUFFIX
    return {queue: queues.last_polls(queue, "workflow", build), tools: queues.last_polls(tools, "activity", build)}


def without_news(before: Polls, now: Polls) -> list[str]:
    """The task queues that no worker has polled since `before`."""
    return [queue for queue, found in now.items() if not found.items() - before.get(queue, {}).items()]


async def left_behind(client: Client, settings: Settings, build: str) -> list[str]:
    """The task queues of others that would lose their workers if the build became current: those that get the work now
    poll there, and none of this build. What is current is so for each queue that a version ever polled, in the whole
    namespace; while no version is, unversioned workers get the work."""
    info = await _described(client)
    current = "" if info is None else str(info.routing_config.current_deployment_version.build_id)
    if info is None or current == build:
        return []
    names = [current] if current else [each.deployment_version.build_id for each in info.version_summaries]
    ours = (settings.task_queue, settings.task_queue + TOOLS_QUEUE_SUFFIX)
    found = await asyncio.gather(*(_task_queues(client, name) for name in names))
    served = {each for some in found for each in some if each[0] not in ours}
    queues = Queues(client)
    await asyncio.gather(*(queues.ask(*each) for each in served))
    return sorted({queue for queue, kind in served if _loses(queues.builds(queue, kind), current, build)})


async def _task_queues(client: Client, build: str) -> list[tuple[str, Kind]]:
    """The task queues that workers of a build have polled."""
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=DEPLOYMENT, build_id=build),
    )
    answer = await client.workflow_service.describe_worker_deployment_version(request)
    kinds: dict[int, Kind] = {
        TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW: "workflow",
        TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY: "activity",
    }
    known = answer.version_task_queues or answer.worker_deployment_version_info.task_queue_infos
    return [(each.name, kinds[each.type]) for each in known if each.type in kinds]


def _loses(polls: Counter[str], current: str, build: str) -> bool:
    return bool(polls[current]) and not polls[build]


async def set_current(client: Client, build: str, seconds: float = 10) -> None:
    """Makes the build current: new runs go to it. The server knows a version a moment after its workers came."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace, deployment_name=DEPLOYMENT, build_id=build, identity="perdure deploy"
    )
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            if asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(0.3)
        else:
            return


def to_tell(seen: Seen, build: str, served: Iterable[str]) -> bool:
    """Whether a run must be told to roll over: it is on another build whose workers still serve it, and idle."""
    return bool(seen.build) and seen.build != build and seen.status in IDLE and seen.build in served


async def check_mixing(client: Client, settings: Settings, queues: Iterable[str]) -> list[str]:
    """Looks whether this worker fits those that are there. Raises SettingsError for an unversioned worker on a queue
    whose work goes to a version; gives remarks on what is meant only for the time of a change."""
    remarks = []
    for queue in queues:
        kind = (
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
            if queue.endswith(TOOLS_QUEUE_SUFFIX)
            else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        )
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
        )
        try:
            answer = await client.workflow_service.describe_task_queue(request)
        except RPCError as error:  # whoever may serve a queue need not be allowed to look at it
            _LOG.info("the workers of %s could not be looked at: %s", queue, error.message)
            continue
        current = answer.versioning_info.current_deployment_version.build_id
        versioned = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
        modes = {poller.deployment_options.worker_versioning_mode == versioned for poller in answer.pollers}
        if current and not settings.build_id:
            raise SettingsError(
                f"PERDURE_BUILD_ID is empty, and the work of the queue {queue!r} goes to build {current}: this worker "
                "would get none. Set PERDURE_BUILD_ID (`perdure build-id` says which), or give the work back to "
                f"unversioned workers: {SET_CURRENT} --unversioned --yes"
            )
        if settings.build_id and False in modes and not current:
            remarks.append(f"unversioned workers serve {queue!r}, and get all of its work until `perdure deploy`")
        if not settings.build_id and True in modes:
            remarks.append(f"workers with a build id poll {queue!r} too, and get nothing while no version is current")
    return remarks
