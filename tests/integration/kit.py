"""What the integration tests stand on: a real server, a real HTTP model, and runs started with the `temporal` CLI."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from temporalio.client import Client, Plugin, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker

from scripts.embedded import temporal_binary
from scripts.scripted_model import ScriptedModel, serve
from workers.client import WORKER_DATA_CONVERTER, converter_of
from workers.settings import Settings, read_settings
from workers.worker import WORKFLOWS, PlainRunner, Queues, make_workers, make_world

ROOT = Path(__file__).resolve().parent.parent.parent


class Stack:
    """Perdure for one test: its own task queue, store, workspaces, bundles and model scripts, on a shared server."""

    def __init__(self, address: str, folder: Path, name: str) -> None:
        self.address, self.folder, self.name = address, folder, name
        self.environment = {
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "PERDURE_TASK_QUEUE": name,
            "PERDURE_STORE": (folder / "store").as_uri(),
            "PERDURE_WORKSPACES": str(folder / "workspaces"),
            "PERDURE_BUNDLES": str(folder / "bundles"),
            "PERDURE_FETCH_PRIVATE": "127.0.0.1",
            "OPENAI_API_KEY": "sk-test-canary-0123456789",
        }
        for part in ("bundles", "scripts", "store"):
            (folder / part).mkdir(parents=True)
        self.runs: list[str] = []
        self.root = ROOT
        self.model: ScriptedModel | None = None
        self.processes: list[subprocess.Popen[bytes]] = []

    # The world outside

    def script(self, name: str, *turns: dict[str, Any], **more: Any) -> None:
        """Writes what the model `name` says, turn by turn; see `say` and `call`."""
        (self.folder / "scripts" / f"{name}.toml").write_text(tomli_w.dumps({**more, "turn": list(turns)}))

    def bundle(self, name: str, tools: list[str], *, version: str = "1", **tables: Any) -> str:
        """Writes a bundle whose model plays the script of the same name; further tables as in bundle.toml."""
        folder = self.folder / "bundles" / name / version
        folder.mkdir(parents=True, exist_ok=True)
        tables.setdefault("model", [{"model": name}])
        (folder / "bundle.toml").write_text(tomli_w.dumps({"tools": tools, **tables}))
        (folder / "prompt.md").write_text("You are an agent in a test.\n")
        return f"{name}@{version}"

    def serve_model(self, **options: Any) -> ScriptedModel:
        """Starts the scripted model over what `script` wrote."""
        self.model = serve(self.folder / "scripts", **options)
        self.environment["OPENAI_BASE_URL"] = self.model.url
        return self.model

    def requests(self, model: str) -> dict[str, int]:
        """How often each turn of a model was asked for."""
        assert self.model is not None
        return dict(self.model.stats()["requests"].get(model, {}))

    # Workers

    def converter(self, *, worker: bool = False) -> DataConverter:
        """The converter over this stack's store: large payloads are kept in it."""
        return converter_of(self.settings(), worker=worker)

    def settings(self) -> Settings:
        """The settings that a worker of this stack reads."""
        return read_settings(self.environment)

    @asynccontextmanager
    async def worker(
        self, queues: Queues = "all", plugins: Sequence[Plugin] = (), **options: Any
    ) -> AsyncIterator[list[Worker]]:
        """Workers in this process."""
        namespace = self.environment.get("TEMPORAL_NAMESPACE", "default")
        converter = self.converter(worker=True)
        client = await Client.connect(self.address, namespace=namespace, data_converter=converter, plugins=plugins)
        world = await make_world(client, self.settings())
        workers = make_workers(client, world, self.settings(), queues, **options)
        for worker in workers:
            await worker.__aenter__()
        try:
            yield workers
        finally:
            await asyncio.gather(*(worker.__aexit__(None, None, None) for worker in workers))
            await world.gateway.close()
            world.executor.close()

    def start_worker(self, *arguments: str, module: str = "scripts.cli", **environment: str) -> subprocess.Popen[bytes]:
        """A worker process, as a user starts it, of the checkout `root`."""
        log = (self.folder / f"worker-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", module, "worker", *arguments],
            cwd=self.root,
            env={**plain_environment(), **self.environment, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Ends what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        if self.model is not None:
            self.model.close()

    # The CLI

    async def temporal(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`temporal …` with JSON output, as a person types it."""
        return await self.shell(shlex.join(["temporal", *arguments, "-o", "json"]))

    @property
    def path(self) -> str:
        """A search path with the `temporal` and `perdure` of this project in front."""
        return f"{Path(temporal_binary()).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    async def shell(self, lines: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Command lines under bash."""
        environment = {**plain_environment(), **self.environment, "PATH": self.path}
        run = partial(subprocess.run, env=environment, cwd=folder, text=True, capture_output=True, timeout=120)
        return await asyncio.to_thread(run, ["bash", "-ec", lines])

    async def start(self, value: Any, workflow_id: str | None = None, *more: str, raw: str | None = None) -> str:
        """Starts a run by the CLI; gives its workflow id."""
        workflow_id = workflow_id or f"{self.name}-{len(self.runs)}"
        text = json.dumps(value, ensure_ascii=False) if raw is None else raw
        done = await self.temporal(
            *("workflow", "start", "--type", "AgentRun", "--task-queue", self.name),
            *("--workflow-id", workflow_id, "--input", text, *more),
        )
        assert done.returncode == 0, done.stderr
        self.runs.append(workflow_id)
        return workflow_id

    async def send(self, how: str, workflow_id: str, name: str, value: Any) -> subprocess.CompletedProcess[str]:
        """Sends a message as `update` or `signal`, by the CLI."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        verb = ("update", "execute") if how == "update" else ("signal",)
        return await self.temporal("workflow", *verb, "-w", workflow_id, "--name", name, "--input", text)


def say(text: str, **more: Any) -> dict[str, Any]:
    """A turn without calls: the model's answer."""
    return {"text": text, **more}


def call(tool: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    """A turn with one call."""
    return {"text": text, "calls": [{"tool": tool, "arguments": arguments}]}


def calls(*each: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A turn with several calls."""
    return {"text": "", "calls": [{"tool": tool, "arguments": arguments} for tool, arguments in each]}


async def until(look: Callable[[], Any], seconds: float = 90, what: str = "it") -> Any:
    """Waits until `look()` (a plain or an async function) gives something true, and gives that.

    It looks ever less often, at last twice a second: looking costs the server and the workers time.
    """
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        found = look()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(min(0.05 + passed / 20, 0.5))
    raise AssertionError(f"{what} did not happen within {seconds:g} s")


async def pending(handle: WorkflowHandle[Any, Any], count: int = 1, seconds: float = 90) -> list[dict[str, Any]]:
    """The open requests, once there are at least `count`."""

    async def look() -> Any:
        try:
            found = await handle.query("pending")
        except RPCError:  # no worker answers yet
            return None
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = await until(look, seconds, f"{count} pending request(s)")
    return found


async def replay(client: Client, workflow_ids: list[str], converter: DataConverter = WORKER_DATA_CONVERTER) -> None:
    """Replays the histories of runs, continued ones too, with today's code."""
    replayer = Replayer(
        workflows=WORKFLOWS, data_converter=converter, workflow_runner=PlainRunner(), debug_mode=True
    )  # without its limit of two seconds for one task, after which it hangs
    for workflow_id in dict.fromkeys(workflow_ids):
        for run_id in await executions(client, workflow_id):
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
            if history.events:
                await replayer.replay_workflow(history)


async def executions(client: Client, workflow_id: str) -> list[str]:
    """The run ids of a workflow id, newest first, as each names the one that it continues."""
    found = [(await client.get_workflow_handle(workflow_id).describe()).run_id]
    while True:
        handle = client.get_workflow_handle(workflow_id, run_id=found[-1])
        events = (await handle.fetch_history()).events
        before = events[0].workflow_execution_started_event_attributes.continued_execution_run_id if events else ""
        if not before or before in found:
            return found
        found.append(before)


def plain_environment() -> dict[str, str]:
    """This process's environment without anybody's own settings."""
    ours = ("TEMPORAL_", "PERDURE_", "OPENAI_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, as a machine dies."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
