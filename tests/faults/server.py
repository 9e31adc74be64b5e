"""A model server that misbehaves on purpose: real HTTP, raw bodies, headers, delays and cuts.

What it answers is up to a plan; what it is asked is held against the protocol every time, so that a client that broke
its own transcript is found out at the next request.
"""

import json
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from scripts.chat_protocol import RefusedError, check_messages, check_tools
from tests.faults.responses_protocol import check_input, input_turns

End = Literal["whole", "cut", "reset", "stall"]


@dataclass(frozen=True)
class Raw:
    """One answer as bytes. `gap`: seconds between pieces; `length`: one body with a Content-Length, not chunks.

    `end`: `cut` closes the connection without an end, `reset` resets it, `stall` says nothing more and keeps it open.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] = ()
    delay: float = 0.0
    gap: float = 0.0
    end: End = "whole"
    length: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it came: which one it is of its model (from 0) and which turn it asks for (from 0)."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    number: int
    turn: int
    at: float

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.body.get("model"))

    @property
    def streams(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))


Play = Callable[[Asked], Raw]
Rule = Callable[[dict[str, Any]], None]
"""A server's own taste in requests: raises RefusedError for a body that it does not take."""


class FaultServer(ThreadingHTTPServer):
    """Plays `plan(asked)`; a list of plays is played one request after the other, the last one for ever."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, plan: Callable[[Asked], Play] | list[Play], *rules: Rule) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan = plan if callable(plan) else lambda asked: plan[min(asked.number, len(plan) - 1)]
        self.rules = rules
        self.asked: list[Asked] = []
        self.invalid: list[str] = []
        self.refused: list[str] = []
        self.done: list[float] = []
        self.most_at_once = 0
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._now: Counter[tuple[str, int]] = Counter()
        threading.Thread(target=partial(self.serve_forever, poll_interval=0.05), daemon=True).start()

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def requests(self, model: str | None = None) -> int:
        """How many requests came, of a model or in all."""
        return sum(1 for asked in self.asked if model in (None, asked.model))

    def note(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Asked:
        """Files a request and says which one it is."""
        with self._lock:
            model = str(body.get("model"))
            asked = Asked(path, body, headers, self._numbers[model], turn_of(path, body), time.monotonic())
            self._numbers[model] += 1
            self.asked.append(asked)
            self._now[model, asked.turn] += 1
            self.most_at_once = max(self.most_at_once, self._now[model, asked.turn])
        return asked

    def leave(self, asked: Asked) -> None:
        """The answer was sent, or nobody waits for it any more."""
        with self._lock:
            self._now[asked.model, asked.turn] -= 1
            self.done.append(time.monotonic())

    def check(self, path: str, body: dict[str, Any]) -> None:
        """Raises RefusedError for a request that breaks the protocol (and remembers it), or a rule of this server."""
        try:
            if path.endswith("/responses"):
                check_input(body)
            else:
                check_messages(body.get("messages"))
                check_tools(body.get("tools"))
        except RefusedError as error:
            self.invalid.append(str(error))
            raise
        for rule in self.rules:
            try:
                rule(body)
            except RefusedError as error:
                self.refused.append(str(error))
                raise

    def close(self) -> None:
        """Ends it, and every answer that stalls."""
        self.released.set()
        self.shutdown()
        self.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what this server is for."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def turn_of(path: str, body: dict[str, Any]) -> int:
    """How many answers of the model the request holds: which turn it asks for."""
    if path.endswith("/responses"):
        return input_turns(body)
    return sum(message.get("role") == "assistant" for message in body.get("messages") or [])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = self.server.note(self.path, body, {name.lower(): value for name, value in self.headers.items()})
        try:
            try:
                self.server.check(self.path, body)
                raw = self.server.plan(asked)(asked)
            except RefusedError as error:
                raw = Raw(error.status, {}, (json.dumps(error.body()).encode(),), length=True)
            self._play(raw)
        finally:
            self.server.leave(asked)

    def _play(self, raw: Raw) -> None:
        self.server.released.wait(raw.delay)
        if raw.end == "reset" and not raw.pieces:
            self._reset()
            return
        self.send_response(raw.status)
        headers = {"Content-Type": "application/json" if raw.length else "text/event-stream", **raw.headers}
        if raw.length:
            headers["Content-Length"] = str(sum(map(len, raw.pieces)) + (1000 if raw.end != "whole" else 0))
        else:
            headers["Transfer-Encoding"] = "chunked"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        for piece in raw.pieces:
            self.wfile.write(piece if raw.length else b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            self.server.released.wait(raw.gap)
        self._end(raw)

    def _end(self, raw: Raw) -> None:
        if raw.end == "whole":
            if not raw.length:
                self.wfile.write(b"0\r\n\r\n")
            return
        if raw.end == "reset":
            self._reset()
            return
        if raw.end == "stall":
            self._wait_until_left()
        self.close_connection = True

    def _wait_until_left(self) -> None:
        self.connection.settimeout(0.1)
        while not self.server.released.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""
