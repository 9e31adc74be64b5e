"""The check of an installation: each part by itself, so that one that is broken hides no other."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkerDeploymentRequest,
    ListWorkerDeploymentsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import Failure
from activities.manifest import Model
from activities.store import Store, open_store
from activities.tools import Registry, ToolSetupError, load_tools, sandbox
from workers.attributes import missing_search_attributes
from workers.checked_bundles import Finding, check_bundles, check_models
from workers.client import Unreachable, connect
from workers.open_runs import OpenRun, Queues, open_runs
from workers.settings import Settings, SettingsError
from workers.worker import DEPLOYMENT
from workflows.catalog import TOOLS_QUEUE_SUFFIX

LEAST_RETENTION = timedelta(days=7)
MANY_VERSIONS = 80
"""Of the 100 that a deployment may have by default."""
SECONDS = 30.0
STUCK = "perdure runs --stuck"
SERVICE = "look at TEMPORAL_NAMESPACE, and at what TEMPORAL_API_KEY may do there"
REMEDIES = {
    "store": "mend the store, or PERDURE_STORE and its credentials; parked runs go on by themselves",
    "bundles": "mend the store, or PERDURE_BUNDLES",
    "isolation": "see docs/tools.md; until then every command asks a person",
    "codec": "look at the codec's keys",
}
"""Of checks that could not be made to the end; of the others, what the service's own checks need."""
OF_SETTING = {"PERDURE_STORE": "store", "PERDURE_BUNDLES": "bundles", "PERDURE_CODEC": "codec"}
"""The check that a setting belongs to; of the others it is `settings`."""


Check = Callable[[], Awaitable[list[Finding]]]


async def checkup(settings: Settings, wrong: Sequence[SettingsError] = (), *, model: bool = False) -> list[Finding]:
    """Checks everything that can be checked; `wrong`: settings that are left out, since they cannot be used. Raises
    nothing that a check raises: that is a finding."""
    registry, found = _tools(settings)
    found += [_wrong(error) for error in wrong]
    found += await _guarded("isolation", _isolation)
    if not any(each.check == "store" for each in found):  # without it another store would be looked at
        found += await _guarded("store", lambda: _store(settings))
    routes = list[Model]()
    found += await _guarded("bundles", lambda: check_bundles(settings, registry, routes))
    if model:
        found += await check_models(settings, routes)
    try:
        client = await _connect(settings, found)
    except Unreachable as error:
        return [Finding("server", "bad", str(error), "temporal server start-dev, or set TEMPORAL_ADDRESS"), *found]
    except SettingsError as error:
        return [Finding("server", "bad", str(error), "mend the TEMPORAL_… variables, or the profile"), *found]
    config = client.service_client.config
    found.insert(0, Finding("server", "ok", f"{config.target_host} answers"))
    checks: list[tuple[str, Check]] = [
        ("namespace", lambda: _namespace(client)),
        ("search attributes", lambda: _attributes(client)),
        ("workers", lambda: _workers(client, settings)),
        ("versions", lambda: _versions(client, settings)),
        ("runs", lambda: _runs(client)),
    ]
    if not any(each.check == "codec" for each in found):
        checks.append(("codec", lambda: _codec(client)))
    for name, check in checks:
        found += await _guarded(name, check)
    return found


def _wrong(error: SettingsError) -> Finding:
    return Finding(OF_SETTING.get(error.variable, "settings"), "bad", str(error), f"mend {error.variable}")


async def _connect(settings: Settings, found: list[Finding]) -> Client:
    """A client, without a codec where that does not load, which is a finding. Raises Unreachable and SettingsError."""
    try:
        return await connect(settings)
    except SettingsError as error:
        if not settings.codec or error.variable != "PERDURE_CODEC":
            raise
        found.append(_wrong(error))
        return await connect(replace(settings, codec=""))


async def _guarded(name: str, check: Check) -> list[Finding]:
    try:
        async with asyncio.timeout(SECONDS):
            return await check()
    except TimeoutError:
        said = f"no answer within {SECONDS:g} s"
    except RPCError as error:
        said = f"the service refused: {error.message}"
    except Failure as error:
        said = error.message
    except (ValueError, OSError) as error:
        said = f"{type(error).__name__}: {error}"
    return [Finding(name, "bad", said, REMEDIES.get(name, SERVICE))]


def _tools(settings: Settings) -> tuple[Registry | None, list[Finding]]:
    try:
        registry = load_tools(settings.tool_modules)
    except ToolSetupError as error:
        return None, [Finding("tools", "bad", str(error), "mend the module, or take it out of PERDURE_TOOLS")]
    return registry, [Finding("tools", "ok", f"{len(list(registry))} of them load")]


async def _isolation() -> list[Finding]:
    """Of this machine: where tools run is where it counts."""
    why = await asyncio.to_thread(sandbox.problem)
    if why is not None:
        remedy = "apt-get install bubblewrap, or see docs/tools.md; until then every command asks a person"
        return [Finding("isolation", "warn", f"commands are not isolated here: {why}", remedy)]
    return [Finding("isolation", "ok", "commands run apart, by bubblewrap")]


async def _store(settings: Settings) -> list[Finding]:
    """Writes, reads, lists, puts if absent and deletes, below a name of its own."""
    store = open_store(settings.store)
    top = f"doctor/{secrets.token_hex(8)}"
    try:
        faults = await _try_store(store, top)
    finally:
        await store.delete(top)
    if faults:
        remedy = "use a store with conditional puts (If-None-Match); see docs/operations.md"
        return [Finding("store", "bad", f"{store!r}: {'; '.join(faults)}", remedy)]
    return [Finding("store", "ok", f"{store!r} writes, reads, lists and puts if absent")]


async def _try_store(store: Store, top: str) -> list[str]:
    faults = []
    await store.put(f"{top}/a", b"1")
    if await store.get(f"{top}/a") != b"1":
        faults.append("what was written is not what is read")
    won = await asyncio.gather(*(store.put_new(f"{top}/b", str(n).encode()) for n in range(4)))
    if sum(won) != 1 or await store.put_new(f"{top}/a", b"2") or await store.get(f"{top}/a") != b"1":
        faults.append("put-if-absent lets more than one win: effects could happen twice")
    if sorted(key.removeprefix(f"{top}/") for key in await store.keys(top)) != ["a", "b"]:
        faults.append("the list of keys is not complete")
    return faults


async def _namespace(client: Client) -> list[Finding]:
    try:
        answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        remedy = f"temporal operator namespace create -n {client.namespace} --retention 720h"
        return [Finding("namespace", "bad", f"there is none called {client.namespace!r}", remedy)]
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept < LEAST_RETENTION:
        hours = kept.total_seconds() / 3600
        said = f"{client.namespace!r} forgets closed runs after {hours:g} h"
        remedy = f"temporal operator namespace update -n {client.namespace} --retention 720h"
        return [Finding("namespace", "warn", said, remedy)]
    return [Finding("namespace", "ok", f"{client.namespace!r} keeps closed runs for {kept.days} days")]


async def _attributes(client: Client) -> list[Finding]:
    missing = await missing_search_attributes(client)
    if missing:
        return [Finding("search attributes", "warn", f"not registered: {', '.join(missing)}", "perdure setup")]
    return [Finding("search attributes", "ok", "all registered")]


async def _workers(client: Client, settings: Settings) -> list[Finding]:
    queues, queue = Queues(client), settings.task_queue
    await queues.look([queue])
    served = {
        "workflows": queues.pollers(queue, "workflow"),
        "models": queues.pollers(queue, "activity"),
        "tools": queues.pollers(queue + TOOLS_QUEUE_SUFFIX, "activity"),
    }
    if missing := [what for what, who in served.items() if not who]:
        return [Finding("workers", "bad", f"nobody serves {', '.join(missing)} on {queue!r}", "perdure worker")]
    counts = ", ".join(f"{len(set(who))} for {what}" for what, who in served.items())
    return [Finding("workers", "ok", f"{counts} on {queue!r}")]


async def _versions(client: Client, settings: Settings) -> list[Finding]:
    answer = await client.workflow_service.list_worker_deployments(
        ListWorkerDeploymentsRequest(namespace=client.namespace, page_size=100)
    )
    ours = [each for each in answer.worker_deployments if each.name == DEPLOYMENT]
    if not ours:
        return [Finding("versions", "ok", "workers are not versioned")]
    current = ours[0].routing_config.current_deployment_version.build_id
    set_current = (
        f"temporal worker deployment set-current-version --deployment-name {DEPLOYMENT} --build-id BUILD --yes"
    )
    queues = Queues(client)
    await queues.look([settings.task_queue])
    if not current:
        return [_unversioned(queues.builds(settings.task_queue, "workflow"))]
    if not queues.pollers(settings.task_queue, "workflow", current):
        said = f"build {current} is current, and no worker of it polls: new runs wait"
        return [Finding("versions", "bad", said, f"start a worker with PERDURE_BUILD_ID={current}, or: {set_current}")]
    return await _count_versions(client, current)


def _unversioned(polls: Mapping[str, int]) -> Finding:
    """What it means that no version is current. `polls`: how many workers poll, by build, empty for those without."""
    if not any(polls):
        return Finding("versions", "ok", "no version is current: workers without a build id get the work")
    if polls.get(""):
        said = "no version is current: workers without a build id get the work, those with one only that of their runs"
        return Finding("versions", "warn", said, "stop the ones, or give the others the work: perdure deploy")
    said = "no version is current, and all workers have a build id: new runs wait"
    return Finding("versions", "bad", said, "perdure deploy")


async def _count_versions(client: Client, current: str) -> list[Finding]:
    described = await client.workflow_service.describe_worker_deployment(
        DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=DEPLOYMENT)
    )
    count = len(described.worker_deployment_info.version_summaries)
    if count >= MANY_VERSIONS:
        remedy = f"temporal worker deployment delete-version --deployment-name {DEPLOYMENT} --build-id OLD"
        return [Finding("versions", "warn", f"{count} versions are registered; new ones are refused at 100", remedy)]
    return [Finding("versions", "ok", f"build {current} is current, {count} in all")]


async def _runs(client: Client) -> list[Finding]:
    found, now = await open_runs(client), datetime.now(UTC)
    stuck = [each for each in found if each.cause.is_stuck(now, timedelta(hours=1))]
    stranded = [each for each in stuck if each.cause.kind == "no_worker" and each.seen.build]
    said = [_no_worker(build, stranded) for build in sorted({each.seen.build for each in stranded})]
    if others := [each for each in stuck if each not in stranded]:
        kinds = ", ".join(sorted({each.cause.kind for each in others}))
        said.append(Finding("runs", "warn", f"{len(others)} of {len(found)} open runs are stuck: {kinds}", STUCK))
    return said or [Finding("runs", "ok", f"{len(found)} open, none stuck")]


def _no_worker(build: str, stranded: list[OpenRun]) -> Finding:
    runs = [each for each in stranded if each.seen.build == build]
    names = ", ".join(each.seen.workflow_id for each in runs[:5])
    said = f"no worker for build {build}: {len(runs)} open runs wait for one ({names})"
    return Finding("runs", "bad", said, runs[0].cause.remedy)


async def _codec(client: Client) -> list[Finding]:
    """What the client encodes it must be able to read."""
    value = {"doctor": secrets.token_hex(8)}
    payloads = await client.data_converter.encode([value])
    if await client.data_converter.decode(payloads, [dict]) != [value]:
        return [Finding("codec", "bad", "what was encoded is not what is decoded", "look at the codec's keys")]
    named = client.data_converter.payload_codec
    return [
        Finding("codec", "ok", f"{type(named).__name__} encodes and decodes" if named else "none; payloads are plain")
    ]
