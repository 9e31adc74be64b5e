"""`perdure worker`: serves runs until it is stopped."""

import asyncio
import json
import logging
from contextlib import ExitStack
from typing import Annotated, Any

import typer
from rich.console import Console
from temporalio.client import Client
from temporalio.worker import Worker

from activities.world import World
from scripts.commands.running import Refused, run
from workers.attributes import missing_search_attributes
from workers.builds import check_build_id
from workers.client import connect
from workers.deployments import check_mixing
from workers.health import Health, HealthServer
from workers.inflight import InFlight
from workers.life import Ending, WorkerFailed, serve
from workers.redacting import redact_logs
from workers.settings import Settings, SettingsError, read_settings
from workers.telemetry import start_telemetry
from workers.watchdog import Watchdog
from workers.watching import Observers, Watch, log_event
from workers.worker import Queues, make_workers, make_world, queues_of


def worker(
    queue: Annotated[str, typer.Option(help="all, agents (workflows and models) or tools (tools only)")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="say what is served as a line of JSON")] = False,
) -> None:
    """Serve runs until SIGTERM or Ctrl+C; a second one hurries. `PERDURE_GRACE` seconds are the longest it takes."""
    if queue not in ("all", "agents", "tools"):
        raise typer.BadParameter(f"{queue!r} is not one of: all, agents, tools", param_hint="--queue")
    run(_serve(queue, as_json))  # type: ignore[arg-type]


async def _serve(queue: Queues, as_json: bool) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("perdure").setLevel(logging.INFO)
    console, settings = Console(emoji=False, stderr=True), read_settings()
    check_build_id(settings.build_id)
    telemetry = start_telemetry(settings.environment)
    redact_logs([*settings.credentials.values(), *settings.secrets()])
    observers = Observers(log_event, *telemetry.observers)
    inflight = InFlight(observers)
    ending = Ending(settings.grace, lambda: "".join(f"; left: {each.what} of {each.run}" for each in inflight))
    ending.listen()
    client = await ending.unless_asked(connect(settings, worker=True, plugins=telemetry.plugins))
    remarks = [] if client is None else await check_mixing(client, settings, queues_of(settings, queue))
    world = None if client is None else await ending.unless_asked(make_world(client, settings))
    if client is not None and world is not None:
        if as_json:
            print(json.dumps({**_served(client, world, settings, queue), "remarks": remarks}), flush=True)
        else:
            await _banner(console, client, world, settings, queue)
        for remark in () if as_json else remarks:
            console.print(remark, markup=False, highlight=False)
        if telemetry.signals:
            console.print(f"telemetry: {', '.join(telemetry.signals).lower()} over OTLP")
        workers = make_workers(client, world, settings, queue, [inflight, Watch(observers), *telemetry.interceptors])
        watches = [] if queue == "tools" else [asyncio.create_task(watch(client)) for watch in telemetry.watches]
        try:
            await _work(client, world, settings, workers, ending, inflight)
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.to_thread(telemetry.close)
    console.print("perdure worker: stopped")
    return 0


async def _work(
    client: Client, world: World, settings: Settings, workers: list[Worker], ending: Ending, inflight: InFlight
) -> None:
    watchdog = Watchdog(inflight.of)
    health = Health(client, workers, watchdog, inflight, queues_of(settings), ending.asked.is_set)
    with ExitStack() as stack:
        if settings.health is not None:
            try:
                stack.enter_context(HealthServer(settings.health, health))
            except OSError as error:
                raise SettingsError(f"PERDURE_HEALTH: cannot listen on {settings.health}: {error.strerror}") from None
        watchdog.start()
        stack.callback(watchdog.close)
        looking = asyncio.create_task(health.look())
        stack.callback(looking.cancel)
        try:
            await serve(workers, ending, inflight)
        except WorkerFailed as error:
            raise Refused(str(error)) from None
        finally:
            await world.gateway.close()
            world.executor.close()


def _served(client: Client, world: World, settings: Settings, queue: Queues) -> dict[str, Any]:
    """What is served, and where, as `--json` gives it."""
    return {
        "queues": queues_of(settings, queue),
        "namespace": client.namespace,
        "address": client.service_client.config.target_host,
        "store": repr(world.store),
        "workspaces": str(settings.workspaces),
        "bundles": [f"{name}@{version}" for name, versions in world.bundles.known().items() for version in versions],
        "tools": [tool.name for tool in world.registry],
        "build_id": settings.build_id,
        "search_attributes": world.has_search_attributes,
    }


async def _banner(console: Console, client: Client, world: World, settings: Settings, queue: Queues) -> None:
    """What is served, and where."""
    slots = ", ".join(f"{name!r} ({count} slots)" for name, count in queues_of(settings, queue).items())
    console.print(
        f"perdure worker: {queue} on {slots} of {client.namespace!r} at {client.service_client.config.target_host}"
    )
    console.print(f"store: {world.store!r}; workspaces: {settings.workspaces}", soft_wrap=True)
    console.print(f"bundles: {', '.join(f'{n}@{v}' for n, vs in world.bundles.known().items() for v in vs)}")
    console.print(f"tools: {', '.join(tool.name for tool in world.registry)}")
    if settings.health is not None:
        console.print(f"health: http://{settings.health[0]}:{settings.health[1]}/live and /ready")
    if settings.build_id:
        console.print(f"build {settings.build_id}; it gets new runs once it is current: perdure deploy")
    if not world.shows_digest:  # which it does where none is missing
        missing = ", ".join(await missing_search_attributes(client))
        console.print(f"no search attributes {missing}: runs work without them; `perdure setup` registers them")
