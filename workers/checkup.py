"""The check of an installation: each part by itself, so that one that is broken hides no other."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkerDeploymentRequest,
    ListWorkerDeploymentsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.bundles import Bundles, build
from activities.errors import Failure
from activities.gateway import Gateway
from activities.manifest import Model
from activities.reply import Ask, NoSink
from activities.store import Store, open_store
from activities.tools import Registry, ToolSetupError, load_tools, sandbox
from activities.trail import Trail
from activities.world import spec_of
from workers.attributes import missing_search_attributes
from workers.client import Unreachable, connect
from workers.open_runs import OpenRun, Queues, open_runs
from workers.settings import Settings
from workers.worker import DEPLOYMENT
from workflows.catalog import TOOLS_QUEUE_SUFFIX

State = Literal["ok", "warn", "bad"]
LEAST_RETENTION = timedelta(days=7)
MANY_VERSIONS = 80
"""Of the 100 that a deployment may have by default."""
SECONDS = 30.0
ASK_SECONDS = 60.0
STUCK = "perdure runs --stuck"
SERVICE = "look at TEMPORAL_NAMESPACE, and at what TEMPORAL_API_KEY may do there"
REMEDIES = {
    "store": "mend the store, or PERDURE_STORE and its credentials; parked runs go on by themselves",
    "bundles": "mend the store, or PERDURE_BUNDLES",
    "isolation": "see docs/tools.md; until then every command asks a person",
    "codec": "look at the codec's keys",
}
"""Of checks that could not be made to the end; of the others, what the service's own checks need."""


@dataclass(frozen=True)
class Finding:
    """What one check found, and the command or act that mends it."""

    check: str
    state: State
    said: str
    remedy: str = ""


Check = Callable[[], Awaitable[list[Finding]]]


async def checkup(settings: Settings, *, model: bool = False) -> list[Finding]:
    """Checks everything that can be checked. Raises nothing that a check raises: that is a finding."""
    registry, found = _tools(settings)
    found += await _guarded("isolation", _isolation)
    found += await _guarded("store", lambda: _store(settings))
    found += await _guarded("bundles", lambda: _bundles(settings, registry, model))
    try:
        client = await connect(settings)
    except Unreachable as error:
        return [Finding("server", "bad", str(error), "temporal server start-dev, or set TEMPORAL_ADDRESS"), *found]
    config = client.service_client.config
    found.insert(0, Finding("server", "ok", f"{config.target_host} answers"))
    checks: list[tuple[str, Check]] = [
        ("namespace", lambda: _namespace(client)),
        ("search attributes", lambda: _attributes(client)),
        ("workers", lambda: _workers(client, settings)),
        ("versions", lambda: _versions(client, settings)),
        ("runs", lambda: _runs(client)),
        ("codec", lambda: _codec(client)),
    ]
    for name, check in checks:
        found += await _guarded(name, check)
    return found


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


async def _bundles(settings: Settings, registry: Registry | None, model: bool) -> list[Finding]:
    """Every bundle loads, its tools exist, and, where wanted, its models answer."""
    if registry is None:
        return [Finding("bundles", "warn", "not checked: the tools do not load")]
    known = Bundles(open_store(settings.store), settings.bundle_folders).known()
    found, good, routes = list[Finding](), 0, dict[tuple[str, str], Model]()
    for name, versions in known.items():
        for version, folder in versions.items():
            try:
                built = build(name, version, folder, lambda globs: [spec_of(tool) for tool in registry.match(globs)])
            except Failure as error:
                found.append(Finding("bundles", "bad", error.message, f"mend {folder / 'bundle.toml'}"))
                continue
            good += 1
            routes |= {(route.model, route.base_url_env): route for route in built.file.model}
    found.append(Finding("bundles", "ok", f"{good} load"))
    if model:
        gateway = Gateway(settings.lookup)
        found += [await _ask(gateway, route) for route in routes.values()]
        await gateway.close()
    return found


async def _ask(gateway: Gateway, route: Model) -> Finding:
    """One request of a few tokens."""
    small = route.model_copy(update={"max_output_tokens": 16, "stream": False})
    question = Ask("You are asked whether you can be reached.", [{"role": "user", "text": "Say ok."}], [])
    trail, until = Trail(), time.monotonic() + ASK_SECONDS
    try:
        await gateway.ask(0, small, question, trail, until, NoSink())
    except Failure as error:
        return Finding("model", "bad", error.message, f"look at {route.base_url_env} and {route.api_key_env}")
    return Finding("model", "ok", f"{route.model} answers")


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
    if not current:
        return [Finding("versions", "bad", "no version is current: versioned workers get no new runs", set_current)]
    queues = Queues(client)
    await queues.look([settings.task_queue])
    if not queues.pollers(settings.task_queue, "workflow", current):
        said = f"build {current} is current, and no worker of it polls: new runs wait"
        return [Finding("versions", "bad", said, f"start a worker with PERDURE_BUILD_ID={current}, or: {set_current}")]
    return await _count_versions(client, current)


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
    if stranded:
        return [_no_worker(build, stranded) for build in sorted({each.seen.build for each in stranded})]
    if stuck:
        kinds = ", ".join(sorted({each.cause.kind for each in stuck}))
        return [Finding("runs", "warn", f"{len(stuck)} of {len(found)} open runs are stuck: {kinds}", STUCK)]
    return [Finding("runs", "ok", f"{len(found)} open, none stuck")]


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
