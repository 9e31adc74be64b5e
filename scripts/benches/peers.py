"""The peers: scripts in a folder of their own, run in a virtual environment of their own, on the same server.

Their driver (`bench.py run | conc | crash KIND …` in that folder) prints one JSON line for each measurement; here the
line becomes a row with our names. The folder is given on the command line, and is no part of this project.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.benches.contenders import BIG, Row
from scripts.benches.rig import child_environment
from scripts.embedded import EmbeddedTemporal

KINDS = ("loop", "ref", "openai", "pydantic", "harness", "actant")
PACKAGES = (
    "temporalio==1.35.*",
    "temporalio-openai-agents==1.1.0",
    "pydantic-ai-slim[temporal]==2.68.0",
    "temporal-agent-harness[openai]==0.8.0",
    "actant==0.41.0",
    "psutil",
)
CRASHING = ("loop", "ref", "openai", "pydantic", "harness")
"""actant needs a database of its own to survive its worker."""


def make_environment(folder: Path) -> Path:
    """The Python of the peers' virtual environment, made from PyPI where it is not there yet."""
    python = folder / "bin" / "python"
    stamp = folder / ".bench-packages"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"bench: making the peers' environment in {folder}; this takes some minutes", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", *PACKAGES]
    subprocess.run(install, check=True)
    stamp.write_text(wanted)
    return python


class Peer:
    """One of them."""

    def __init__(
        self, name: str, python: Path, scripts: Path, folder: Path, temporal: EmbeddedTemporal, cap: float
    ) -> None:
        self.name, self._python, self._scripts, self._out = name, python, scripts, folder / f"peer-{name}"
        self._out.mkdir()
        self._cap = cap
        self._environment = {
            **{key: value for key, value in child_environment(folder).items() if key != "PYTHONPATH"},
            "BENCH_TEMPORAL": temporal.address,
            "BENCH_OUT": str(self._out),
            "BENCH_REF_DB": str(self._out / "ref.db"),
            "BENCH_CAP": str(cap),
            "BENCH_SERVER_PID": str(temporal.pid or ""),
        }

    async def one(self, turns: int) -> Row:
        """One run by itself, and its replay."""
        said = await self._ask("run", self.name, str(turns))
        if said.get("status") != "ok":
            return _failed(said)
        row = {
            "status": "ok",
            "seconds": said["wall_s"],
            "ms_per_turn": said["ms_per_turn"],
            "worker_cpu_seconds": said["worker_cpu_s"],
            "server_cpu_seconds": said["server_cpu_s"],
            "history_bytes": said["bytes"],
            "history_events": said["events"],
            "history_bytes_per_turn": round(said["bytes"] / turns),
            "history_events_per_turn": round(said["events"] / turns, 2),
        }
        replayed = await self._ask("replay", self.name, str(self._out / f"{self.name}-{turns}.pb"))
        return {**row, "replay_cpu_seconds": replayed.get("cpu_s")}

    async def many(self, runs: int, turns: int) -> Row:
        """Runs at once."""
        said = await self._ask("conc", self.name, str(runs), str(turns))
        if said.get("ok") != runs:
            return _failed(said)
        return {
            "status": "ok",
            "seconds": said["wall_s"],
            "runs_per_second": said["runs_per_s"],
            "worker_cpu_seconds": said["worker_cpu_s"],
            "server_cpu_seconds": None,
        }

    async def crash(self) -> Row | None:
        """The worker dies after the effect."""
        if self.name not in CRASHING:
            return None
        options = {"BENCH_CRASH_FILE": str(self._out / "effects"), "BENCH_ACTIVITY_TIMEOUT": "6"}
        said = await self._ask("crash", self.name, **options)
        if said.get("status") != "ok":
            return _failed(said)
        return {"status": "ok", "effects": said["effects"], "seconds": said["wall_s"]}

    async def large(self) -> Row | None:
        """Two turns with results of 3 MB."""
        said = await self._ask("run", self.name, "2", BENCH_TOOL_BYTES=str(BIG))
        if said.get("status") != "ok":
            return _failed(said)
        return {
            "status": "ok",
            "seconds": said["wall_s"],
            "history_bytes": said["bytes"],
            "history_events": said["events"],
        }

    async def _ask(self, *arguments: str, **environment: str) -> Row:
        """The last JSON line of the driver; its last words where there is none."""
        process = await asyncio.create_subprocess_exec(
            self._python,
            "bench.py",
            *arguments,
            cwd=self._scripts,
            env={**self._environment, **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._cap + 60)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)  # with the worker that it has started
            return {"status": f"no end within {self._cap + 60:.0f} s"}
        lines = [line for line in out.decode().splitlines() if line.startswith("{")]
        if lines:
            found: Row = json.loads(lines[-1])
            return found
        words = err.decode(errors="replace").strip().splitlines() or ["no output"]
        return {"status": f"driver: {words[-1][:200]}"}


def _failed(said: Row) -> Row:
    told = str(said.get("detail") or said.get("wft_failure") or "; ".join(said.get("errors") or ()))
    return {"status": f"{said.get('status', 'failed')}: {told}"[:200], "seconds": said.get("wall_s")}


def peers(scripts: Path, venv: Path, folder: Path, temporal: EmbeddedTemporal, cap: float) -> list[Peer]:
    """All that the folder has."""
    python = make_environment(venv)
    there = [kind for kind in KINDS if (scripts / f"flow_{kind}.py").exists()]
    return [Peer(kind, python, scripts, folder, temporal, cap) for kind in there]
