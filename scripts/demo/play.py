"""The main job, shown: an agent run to its result, while the worker is killed twice on the way.

Without a model key the scripted model plays the shipped scenario. With OPENAI_API_KEY or OPENAI_BASE_URL set, that
model does the work, and nobody is killed.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from scripts.demo.processes import ROOT, DemoError, Kills, WorkerProcess, worker_environment
from scripts.demo.screen import Screen, clean
from scripts.demo.services import READER, Services
from scripts.demo.summary import Summary
from scripts.demo.temporal_cli import TemporalCli, short
from scripts.demo.watch import Watch
from scripts.embedded import EmbeddedTemporal, plain_environment

__all__ = ["DemoError", "Options", "play"]

GOAL = "Analyse five competitors and write a report"
BUNDLE = "market-research"
TASK_QUEUE = "perdure"
PREFIX = "demo-"  # of the workflow ids of runs that need the servers of one demo


@dataclass(frozen=True)
class Options:
    """What `./scripts/run` was asked: see its `--help`."""

    goal: str | None = None
    bundle: str | None = None
    yes: bool = False
    keep: bool = False


@dataclass(frozen=True)
class Stage:
    """Everything that is up while the run plays. `state` is the folder that outlives it."""

    state: Path
    temporal: EmbeddedTemporal
    services: Services
    kills: Kills
    worker: WorkerProcess
    scripted: bool


async def play(options: Options) -> int:
    """Play one run; returns the exit code: 0 when it completed and everything arrived exactly once.

    Raises DemoError or EmbeddedError when it cannot be played.
    """
    screen = Screen()
    async with set_up(screen, options, os.environ) as stage:
        run = await start(stage, screen, options)
        result, failure = await follow(stage, screen, run, yes=options.yes)
        summary = Summary(stage.services, run.cli, stage.state, scripted=stage.scripted, ours=options.goal is None)
        code = summary.show(screen, result, failure)
        summary.show_where_to_look(
            screen, f"{stage.temporal.ui_url}/namespaces/default/workflows/{run.cli.workflow_id}"
        )
        if options.keep:
            await stay(stage, screen)
        return code


@asynccontextmanager
async def set_up(screen: Screen, options: Options, environment: Mapping[str, str]) -> AsyncIterator[Stage]:
    """Temporal, the outside world and the worker, up until the end of the block."""
    scripted = not (environment.get("OPENAI_API_KEY") or environment.get("OPENAI_BASE_URL"))
    state = ROOT / ".perdure"
    state.mkdir(exist_ok=True)
    kills = Kills()
    hooks: dict[str, Any] = {"on_turn": kills.on_turn, "on_notice": kills.on_notice} if scripted else {}
    temporal = EmbeddedTemporal(state, say=screen.say)
    async with AsyncExitStack() as stack:
        services = stack.enter_context(Services(model=scripted, **hooks))
        await asyncio.to_thread(temporal.start)
        stack.callback(temporal.stop)
        await end_leftovers(temporal.address, screen)
        more = {
            "PERDURE_FETCH_PRIVATE": services.sites_host,
            "PERDURE_CREDENTIAL_NOTIFY": services.webhook_url,
            "PERDURE_CREDENTIAL_SMTP": services.smtp_url,
            "PERDURE_TASK_QUEUE": TASK_QUEUE,
            "PERDURE_BUILD_ID": "",  # a versioned worker would wait until somebody makes its version current
        }
        if scripted:
            more |= {"OPENAI_BASE_URL": services.model_url, "OPENAI_API_KEY": "scripted"}
        worker = WorkerProcess(state, worker_environment(plain_environment(), state, temporal.address, **more))
        stack.callback(worker.stop)
        worker.start()
        kills.worker = worker
        stage = Stage(state, temporal, services, kills, worker, scripted)
        introduce(stage, screen, options)
        yield stage


async def end_leftovers(address: str, screen: Screen) -> None:
    """Terminate the runs of demos that were broken off: they would go on here, and their servers are gone."""
    client = await Client.connect(address)
    async for run in client.list_workflows(f"WorkflowId STARTS_WITH '{PREFIX}' AND ExecutionStatus = 'Running'"):
        await client.get_workflow_handle(run.id).terminate("its demo was broken off, and another one begins")
        screen.say(f"Run {run.id} of a demo that was broken off: terminated")


def introduce(stage: Stage, screen: Screen, options: Options) -> None:
    """What is up, and what will happen."""
    screen.say(f"Temporal at {stage.temporal.address}, Web UI at {stage.temporal.ui_url}")
    screen.say(f"Worker {stage.worker.pid}, its log in {short(stage.worker.log)}")
    if not stage.scripted:
        screen.say(f"Model: {os.environ.get('OPENAI_BASE_URL') or 'the OpenAI API'}")
        return
    screen.say(
        f"Model: the scripted one, at {stage.services.model_url} (set OPENAI_API_KEY or OPENAI_BASE_URL for another)"
    )
    if options.goal or options.bundle:
        screen.say("  It plays its script, whatever the goal and the bundle are.", style="yellow")
    screen.say("  The worker will be killed twice on the way.")


@dataclass(frozen=True)
class Run:
    """A run that was started."""

    cli: TemporalCli
    handle: WorkflowHandle[Any, Any]


async def start(stage: Stage, screen: Screen, options: Options) -> Run:
    """Start the run, as a person would."""
    goal, bundle = options.goal or GOAL, options.bundle or BUNDLE
    value: dict[str, Any] = {"goal": goal, "bundle": bundle}
    if options.goal is None:
        value["inputs"] = {"sites": stage.services.site_urls, "send_the_report_to": READER}
    prefix = PREFIX if stage.scripted or options.goal is None else "run-"
    cli = TemporalCli(stage.temporal.address, f"{prefix}{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    command = cli.start(TASK_QUEUE, value)
    screen.title(clean(goal))
    screen.say(f"$ {cli.line(*command)}", style="dim")
    await cli.run(*command, "--static-summary", clean(goal))
    client = await Client.connect(stage.temporal.address)
    return Run(cli, client.get_workflow_handle(cli.workflow_id))


async def follow(stage: Stage, screen: Screen, run: Run, *, yes: bool) -> tuple[dict[str, Any] | None, str | None]:
    """Show the run until it ends, and keep a worker up; returns its result or why it failed."""
    watch = Watch(run.handle, run.cli, screen, yes=yes)
    result = asyncio.ensure_future(run.handle.result())
    others = [asyncio.ensure_future(watch.forever()), asyncio.ensure_future(keep_up(stage, screen))]
    try:
        await asyncio.wait([result, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            if task.done():
                task.result()  # it never ends but by an error
        await watch.last_look()
        return await result, None
    except WorkflowFailureError as failure:
        kind = getattr(failure.cause, "type", None) or type(failure.cause).__name__
        return None, f"{kind}: {getattr(failure.cause, 'message', failure.cause)}"
    finally:
        for task in (result, *others):
            task.cancel()
        await asyncio.gather(result, *others, return_exceptions=True)


async def keep_up(stage: Stage, screen: Screen) -> None:
    """Start the worker again when it was killed. Raises DemoError when it, or the Temporal server, ended by itself."""
    told = 0
    while True:
        await asyncio.sleep(0.1)
        if not stage.temporal.adopted and not stage.temporal.running:
            raise DemoError(f"the Temporal server ended; its log: {stage.temporal.log}")
        if stage.worker.running:
            continue
        if told == len(stage.kills.said):
            raise DemoError(
                f"the worker ended by itself; its log, {stage.worker.log}, ends:\n{stage.worker.last_words()}"
            )
        screen.say(f"  ✗ {stage.kills.said[told]}", style="bold red")
        told += 1
        stage.worker.start()
        screen.say(f"  ✓ worker {stage.worker.pid} started in its place", style="green")


async def stay(stage: Stage, screen: Screen) -> None:
    """Leave everything up until somebody ends it, which is no failure."""
    screen.title("The services stay up until Ctrl-C.")
    screen.say(f"  Web UI   {stage.temporal.ui_url}")
    screen.say(f"  Temporal {stage.temporal.address}, with a worker on the task queue {TASK_QUEUE}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        screen.say()
        current = asyncio.current_task()
        if current is not None:
            current.uncancel()
