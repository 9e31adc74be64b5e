"""`perdure worker`: serves runs until it is stopped."""

from typing import Annotated

import typer
from rich.console import Console

from scripts.commands.running import run
from workers.client import connect
from workers.settings import read_settings
from workers.worker import Queues, make_workers, make_world, missing_search_attributes, run_until_signal


def worker(
    queue: Annotated[str, typer.Option(help="all, agents (workflows and models) or tools (tools only)")] = "all",
) -> None:
    """Serve runs until SIGTERM or Ctrl+C."""
    if queue not in ("all", "agents", "tools"):
        raise typer.BadParameter(f"{queue!r} is not one of: all, agents, tools", param_hint="--queue")
    run(_serve(queue))  # type: ignore[arg-type]


async def _serve(queue: Queues) -> int:
    console, settings = Console(stderr=True), read_settings()
    client = await connect(settings, worker=True)
    world = await make_world(client, settings)
    if not world.has_search_attributes:
        missing = ", ".join(await missing_search_attributes(client))
        console.print(f"no search attributes {missing}: runs work without them; `perdure setup` registers them")
    console.print(f"perdure worker: {queue} on {settings.task_queue!r} of {client.namespace!r}, store {world.store!r}")
    console.print(f"bundles: {', '.join(f'{n}@{v}' for n, vs in world.bundles.known().items() for v in vs)}")
    console.print(f"tools: {', '.join(tool.name for tool in world.registry)}")
    if settings.build_id:
        console.print(f"build {settings.build_id}; it gets work once it is current: see `temporal worker deployment`")
    workers = make_workers(client, world, settings, queue)
    await run_until_signal(workers, world)
    console.print("perdure worker: stopped")
    return 0
