"""What every bench stands on: a server of its own, an installation of ours, and processes with their CPU seconds."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from temporalio.client import Client, WorkflowHandle

from scripts.benches.model import HttpModel
from scripts.benches.workload import OUTSIDE, RESULT, Mark
from scripts.embedded import EmbeddedTemporal
from workers.client import DATA_CONVERTER

Where = Literal["http", "inside"]
READY = b"perdure worker: all"
LARGE, SMALL = 1_000_000_000, 60_000
"""Context windows in tokens: one that is never full, and one that makes sessions hand over."""


@contextmanager
def server() -> Iterator[tuple[Path, EmbeddedTemporal]]:
    """A temporary folder, and a server in it."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with EmbeddedTemporal(folder / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as temporal:
            yield folder, temporal


class Process:
    """A child in a process group of its own, that is killed at the end."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str], cwd: Path | None = None) -> None:
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                command, env=dict(environment), cwd=cwd, stdout=out, stderr=out, start_new_session=True
            )
        self.pid = self._popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._popen.poll() is not None

    def kill(self) -> None:
        """Kills it with what it started."""
        if not self.over:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def cpu(self) -> float:
        """Its CPU seconds so far, without its children's; 0 where the system has no /proc."""
        return cpu_of(self.pid)


def cpu_of(pid: int | None) -> float:
    """The CPU seconds of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child_environment(folder: Path) -> dict[str, str]:
    """This process's without what would change a worker's behaviour. Bytecode is kept, in the bench's own folder:
    without it each start compiles all that it imports, and where the SDK's sandbox is used, each run too."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "PERDURE_", "TEMPORAL_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


class Ours:
    """An installation of Perdure with a task queue, a store and a bundle of its own."""

    def __init__(
        self,
        folder: Path,
        temporal: EmbeddedTemporal,
        name: str = "ours",
        *,
        where: Where = "inside",
        context: int = LARGE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.temporal, self.name = folder / name, temporal, name
        self.where, self.model = where, HttpModel() if where == "http" else None
        for part in ("outside", "store"):
            (self.folder / part).mkdir(parents=True)
        self.use_context(context)
        self.log = self.folder / "worker.log"
        self.environment = {
            **child_environment(folder),
            "TEMPORAL_ADDRESS": temporal.address,
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "PERDURE_STORE": (self.folder / "store").as_uri(),
            "PERDURE_WORKSPACES": str(self.folder / "workspaces"),
            "PERDURE_BUNDLES": str(self.folder / "bundles"),
            "PERDURE_TOOLS": "scripts.benches.workload",
            "PERDURE_TASK_QUEUE": name,
            "OPENAI_API_KEY": "not-needed",
            OUTSIDE: str(self.folder / "outside"),
            **({"OPENAI_BASE_URL": self.model.url} if self.model else {}),
            **(environment or {}),
        }

    def __enter__(self) -> Self:
        if self.model is not None:
            self.model.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.model is not None:
            self.model.__exit__(None, None, None)

    def use_context(self, tokens: int) -> None:
        """Writes the bundle with that context window. Once a run has used it, it stays."""
        self.context = tokens
        write_bundle(self.folder / "bundles" / "bench" / "1", tokens)

    def worker(self) -> Process:
        """A worker process, ready."""
        before = self._starts()
        module = "scripts.cli" if self.where == "http" else "scripts.benches.worker"
        process = Process([sys.executable, "-m", module, "worker"], self.log, self.environment)
        while self._starts() == before:
            if process.over:
                raise SystemExit(f"bench: the worker did not start:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)
        return process

    def _starts(self) -> int:
        return self.log.read_bytes().count(READY) if self.log.exists() else 0

    async def client(self) -> Client:
        """A client of the server."""
        return await Client.connect(self.temporal.address, data_converter=DATA_CONVERTER)

    async def start(
        self, client: Client, run: str, turns: int, tool: str = "bench_read", size: int = RESULT
    ) -> WorkflowHandle[Any, Any]:
        """Starts a run of so many turns."""
        value = {"goal": f"Be measured. {Mark(0, turns, tool, size)}", "bundle": "bench"}
        return await client.start_workflow("AgentRun", value, id=f"{self.name}-{run}", task_queue=self.name)

    def stored(self, run: str) -> tuple[int, int]:
        """Bytes and number of the objects that a run has in the store."""
        return store_size(self.folder / "store" / "threads" / f"{self.name}-{run}")


def write_bundle(folder: Path, context: int) -> None:
    """The bundle of the bench: all its tools, all allowed but `bench_ask`, and limits that nothing reaches."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bundle.toml").write_text(
        'tools = ["bench_*"]\n'
        f'[[model]]\nmodel = "bench"\nstream = false\ncontext_tokens = {context}\n'
        "[budget]\nturns = 1_000_000\ntokens = 1_000_000_000_000\ncost_usd = 1e9\ntool_calls = 1_000_000\n"
        '[[policy]]\ntool = "bench_ask"\ndecision = "ask"\ntimeout = "24h"\n'
        '[[policy]]\ntool = "bench_*"\ndecision = "allow"\n'
    )
    (folder / "prompt.md").write_text("You are measured.\n")


def store_size(folder: Path) -> tuple[int, int]:
    """Bytes and number of the objects below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


async def completed(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """The result of a run that must complete."""
    found: dict[str, Any] = await handle.result()
    if found["status"] != "completed":
        raise SystemExit(f"bench: run {handle.id} ended: {json.dumps(found)[:500]}")
    return found
