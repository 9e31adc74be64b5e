"""The plain `temporal` command line: the demo does nothing to a run that a person could not type."""

import asyncio
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.demo.processes import DemoError
from scripts.embedded import HOST, PORT, plain_environment, temporal_binary


def short(path: Path) -> str:
    """A path as a person types it: from the current folder, if it is below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


class TemporalCli:
    """The commands of one run."""

    def __init__(self, address: str, workflow_id: str) -> None:
        self.workflow_id = workflow_id
        self._address = address
        self._binary = temporal_binary()
        self._shown = shlex.quote("temporal" if shutil.which("temporal") else short(Path(self._binary)))
        self._elsewhere = address != f"{HOST}:{PORT}"

    def server(self, database: Path) -> str:
        """The command that serves a database file, for looking at what is in it."""
        return f"{self._shown} server start-dev --db-filename {shlex.quote(short(database))}"

    def line(self, *arguments: str) -> str:
        """A command as a person types it."""
        command = [*arguments, *(["--address", self._address] if self._elsewhere else [])]
        return f"{self._shown} {shlex.join(command)}"

    async def run(self, *arguments: str) -> str:
        """Run a command; returns what it prints. Raises DemoError with what it says when it fails."""
        process = await asyncio.create_subprocess_exec(
            self._binary,
            *arguments,
            "--address",
            self._address,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=plain_environment(),
        )
        try:
            out, error = await process.communicate()
        except asyncio.CancelledError:
            if process.returncode is None:
                process.kill()
            raise
        if process.returncode:
            raise DemoError(f"{self.line(*arguments)}\nfailed with {process.returncode}: {error.decode().strip()}")
        return out.decode()

    def start(self, task_queue: str, value: dict[str, Any], kind: str = "AgentRun") -> Sequence[str]:
        """`temporal workflow start` of an agent run, or of a project."""
        command = ["workflow", "start", "--type", kind, "--task-queue", task_queue]
        return [*command, *self._id(), "--input", json.dumps(value, ensure_ascii=False)]

    def look(self, verb: str, *more: str) -> Sequence[str]:
        """`temporal workflow show`, `describe` and the like."""
        return ["workflow", verb, *self._id(), *more]

    def update(self, name: str, owner: str, value: dict[str, Any]) -> Sequence[str]:
        """`temporal workflow update execute`: a decision, sent to the run that asked."""
        command = ["workflow", "update", "execute", "--name", name, "--workflow-id", owner]
        return [*command, "--input", json.dumps(value, ensure_ascii=False)]

    def _id(self) -> Sequence[str]:
        return ["--workflow-id", self.workflow_id]
