"""The worker of the demo, which is a process like any other, and the two moments at which it is killed."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from scripts.demo.services import STEP_OF_THE_FIRST_KILL

LULL = 0.7  # seconds before a kill, for the screen to show what came before
ROOT = Path(__file__).resolve().parents[2]


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


class WorkerProcess:
    """`perdure worker`, started, killed and started again. Its output goes to `log`.

    The worker holds a lock in `folder` while it lives: a second demo beside it would share its task queue, and its
    calls would go to the wrong servers.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._record = folder / "worker.json"
        self._lock = self._hold(folder / "worker.lock")
        self._process: subprocess.Popen[bytes] | None = None
        self.log = folder / "worker.log"

    def _hold(self, path: Path) -> IO[str]:
        lock = path.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            known = json.loads(self._record.read_text()) if self._record.exists() else {}
            raise DemoError(
                f"another ./scripts/run is at work in {path.parent}, or left a worker behind (process"
                f" {known.get('worker', 'unknown')}); let it end, or stop it"
            ) from None
        return lock

    @property
    def pid(self) -> int | None:
        """The process's number."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start a new process."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scripts.cli", "worker"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                pass_fds=(self._lock.fileno(),),
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the worker in good order
            )
        self._record.write_text(json.dumps({"worker": self._process.pid}))

    def kill(self) -> None:
        """SIGKILL: no goodbye to anybody."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the worker in good order, and let others use the folder."""
        self._end(signal.SIGTERM)
        self._lock.close()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """The end of the log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-15:])


class Kills:
    """Kills the worker at two moments, once each. The methods are hooks and run on the servers' threads."""

    def __init__(self) -> None:
        self.worker: WorkerProcess | None = None
        self.said: list[str] = []
        self._done: set[str] = set()

    def on_turn(self, _script: str, index: int) -> None:
        """The model has the request of the step, and has not answered yet."""
        if index == STEP_OF_THE_FIRST_KILL - 1:
            self._kill(f"while the model was thinking about step {STEP_OF_THE_FIRST_KILL}")

    def on_notice(self) -> None:
        """The chat has the notice, and the worker does not know it yet."""
        self._kill("just after the notice reached the chat, before the worker heard so")

    def _kill(self, moment: str) -> None:
        if self.worker is None or moment in self._done:
            return
        self._done.add(moment)
        time.sleep(LULL)
        self.said.append(f"worker {self.worker.pid} killed with SIGKILL {moment}")  # first: who sees it dead asks why
        self.worker.kill()


def worker_environment(base: Mapping[str, str], state: Path, address: str, **more: str) -> dict[str, str]:
    """`base`, with everything of this demo below `state`."""
    own = {
        "TEMPORAL_ADDRESS": address,
        "PERDURE_STORE": (state / "store").as_uri(),
        "PERDURE_WORKSPACES": str(state / "workspaces"),
        "PYTHONUNBUFFERED": "1",
    }
    path = os.pathsep.join([str(ROOT), *filter(None, [base.get("PYTHONPATH")])])
    return {**base, **own, "PYTHONPATH": path, **more}
