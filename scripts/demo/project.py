"""`./scripts/run --project`: a project of many sessions, while worker and server are killed at random.

The scripted model plays initializer, coders and evaluators; files, git, tests, Temporal, the worker and the kills are
real. Of the coders one is careless and one breaks what another one built.
"""

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from scripts.demo.play import end_leftovers
from scripts.demo.processes import ROOT, DemoError, WorkerProcess, worker_environment
from scripts.demo.project_verdict import Verdict, verdict
from scripts.demo.screen import Screen, clean
from scripts.demo.temporal_cli import TemporalCli, short
from scripts.embedded import EmbeddedTemporal, plain_environment
from scripts.scripted_model import ScriptedModel, serve

SCRIPTS = Path(__file__).parent / "project"
BRIEF = "A small Python package for texts, with a command line: slugify, count_words, truncate"
QUEUE = "perdure-project"
TURNS = 55
"""About as many requests as the model gets: the kills are spread over them."""
KILLS = ("worker", "server", "worker", "server", "worker")
PATIENCE = timedelta(seconds=3)
BACK_BY = 60
"""Looks, twice a second, until which whoever was killed is there again."""


@dataclass
class Kill:
    """Whom to kill, once the model has had so many requests, and how many seconds later."""

    whom: str
    after: int
    pause: float


@dataclass
class Stage:
    """What is up. `requests` counts those to the model."""

    state: Path
    temporal: EmbeddedTemporal
    model: ScriptedModel
    worker: WorkerProcess
    repository: Path
    requests: list[int]
    killed: list[str] = field(default_factory=list)


def kills(seed: int) -> list[Kill]:
    """The kills of a seed, in their order."""
    chance = random.Random(seed)  # noqa: S311, not for secrets
    whom = chance.sample(KILLS, len(KILLS))
    after = sorted(chance.sample(range(3, TURNS - 5), len(KILLS)))
    return [Kill(each, number, chance.uniform(0, 1.5)) for each, number in zip(whom, after, strict=True)]


async def play_project(seed: int | None = None, state: Path = ROOT / ".perdure") -> int:
    """Plays it; gives the exit code: 0 when everything is as it has to be. Raises DemoError and EmbeddedError."""
    screen = Screen()
    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311, not for secrets
    with set_up(screen, state) as stage:
        screen.say(f"Temporal at {stage.temporal.address}, Web UI at {stage.temporal.ui_url}")
        screen.say(f"Repository {short(stage.repository)}; the model is the scripted one")
        screen.say(f"Worker and server will be killed five times on the way (--seed {seed})")
        if stage.temporal.adopted:
            raise DemoError("a Temporal server serves this folder already, and is not ours to kill; stop it first")
        await end_leftovers(stage.temporal.address, screen)
        project = await start(stage, screen)
        killing = asyncio.ensure_future(kill_all(stage, screen, kills(seed)))
        showing = asyncio.ensure_future(show(stage, project, screen))
        ending = asyncio.ensure_future(result_of(project))
        try:
            await asyncio.wait((ending, showing), return_when=asyncio.FIRST_COMPLETED)  # the latter ends by a failure
        finally:
            for task in (killing, showing, ending):
                task.cancel()
            ends = await asyncio.gather(killing, showing, ending, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        result = ending.result()
        await last_look(project, screen)
        found = verdict(result, await all_notes(project), stage.repository, stage.model.stats(), stage.killed)
        return tell(screen, result, found)


@contextmanager
def set_up(screen: Screen, state: Path) -> Iterator[Stage]:
    """Temporal, the model, an empty repository and a worker, up until the end of the block."""
    requests: list[int] = []
    state.mkdir(exist_ok=True)
    with ExitStack() as stack:
        temporal = EmbeddedTemporal(state, say=screen.say)
        temporal.start()
        stack.callback(temporal.stop)
        model = serve(SCRIPTS, on_turn=lambda _, index: requests.append(index))
        stack.callback(model.close)
        more = {
            "PERDURE_TASK_QUEUE": QUEUE,
            "PERDURE_BUILD_ID": "",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "scripted",
        }
        worker = WorkerProcess(state, worker_environment(plain_environment(), state, temporal.address, **more))
        stack.callback(worker.stop)
        worker.start()
        repository = state / "projects" / f"textkit-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(repository)], check=True)
        yield Stage(state, temporal, model, worker, repository, requests)


async def start(stage: Stage, screen: Screen) -> WorkflowHandle[Any, dict[str, Any]]:
    """Starts the project, as a person would."""
    cli = TemporalCli(stage.temporal.address, f"demo-project-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    command = cli.start(QUEUE, {"brief": BRIEF, "repository": str(stage.repository)}, "ProjectRun")
    screen.title(BRIEF)
    screen.say(f"$ {cli.line(*command)}", style="dim")
    await cli.run(*command)
    client = await Client.connect(stage.temporal.address)
    return client.get_workflow_handle(cli.workflow_id, result_type=dict)


async def kill_all(stage: Stage, screen: Screen, due: list[Kill]) -> None:
    """Each kill at its time, and what was killed started again."""
    for kill in due:
        while True:
            await asyncio.sleep(0.05)
            if len(stage.requests) >= kill.after:
                break
        await asyncio.sleep(kill.pause)
        stage.killed.append(kill.whom)
        screen.say(f"  ✗ {kill.whom} killed with SIGKILL after {len(stage.requests)} requests", style="bold red")
        if kill.whom == "worker":
            await asyncio.to_thread(stage.worker.kill)
            stage.worker.start()
        else:
            await asyncio.to_thread(stage.temporal.kill)
            await asyncio.to_thread(stage.temporal.start)


async def result_of(project: WorkflowHandle[Any, dict[str, Any]]) -> dict[str, Any]:
    """The result, asked for again whenever the server was away."""
    while True:
        try:
            return await project.result()
        except RPCError:
            await asyncio.sleep(0.5)


async def show(stage: Stage, project: WorkflowHandle[Any, Any], screen: Screen) -> None:
    """A line for each session that ended, until it is cancelled. Raises DemoError when the worker, or the Temporal
    server, ended by itself: one that was killed is back sooner than that."""
    shown = missed = 0
    while True:
        missed = 0 if stage.worker.running and stage.temporal.running else missed + 1
        if missed == BACK_BY:
            raise DemoError(
                f"the worker or the Temporal server ended by itself; the worker's log, {stage.worker.log}, ends:\n"
                f"{stage.worker.last_words()}\nThe server's log: {stage.temporal.log}"
            )
        for note in (await query(project, "handoffs") or [])[shown:]:
            screen.say(note_line(note))
            shown += 1
        status = await query(project, "status")
        if status is not None:
            screen.busy(f"{status['tasks'].get('passing', 0)} of {status['tasks']['total']} tasks pass")
            for request in await query(project, "pending") or []:
                raise DemoError(f"something is asked, which is not in the script: {json.dumps(request)}")
        await asyncio.sleep(0.5)


async def last_look(project: WorkflowHandle[Any, Any], screen: Screen) -> None:
    """The board at the end."""
    screen.rest()
    screen.title("Tasks")
    for task in await query(project, "tasks") or []:
        screen.say(
            f"  {task['status']:8} {task['id']}" + (f" (rejected {task['rejected']})" if task["rejected"] else "")
        )


async def query(project: WorkflowHandle[Any, Any], name: str) -> Any:
    """A query's answer; None while nobody can give one."""
    try:
        return await project.query(name, rpc_timeout=PATIENCE)
    except (RPCError, WorkflowQueryFailedError):
        return None


async def all_notes(project: WorkflowHandle[Any, Any]) -> list[dict[str, Any]]:
    """What each session left."""
    return list(await project.query("handoffs"))


def note_line(note: dict[str, Any]) -> str:
    """One session that ended."""
    word = {True: "passes", False: "does not pass", None: ""}[note["passing"]]
    about = " ".join(part for part in (note["task"] or "", word) if part)
    said = note["reasons"][0] if note["reasons"] else note["said"] if note["role"] != "evaluator" else ""
    return f"  {note['number']:>2} {note['role']:11} {about:28} {clean(said, 90)}"


def tell(screen: Screen, result: dict[str, Any], found: Verdict) -> int:
    """What it came to; gives the exit code."""
    screen.title(f"The project ended: {result['status']}, {result['sessions']} sessions")
    for line in found.facts:
        screen.say(f"  ✓ {line}", style="green")
    for line in found.wrong:
        screen.say(f"  ✗ {line}", style="bold red")
    screen.say(f"  $ git -C {short(Path(result['repository']))} log --oneline {result['branch']}")
    return 1 if found.wrong else 0
