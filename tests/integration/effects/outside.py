"""A service outside: it counts effects, and honours keys, can be looked up, or does neither. Workers die of it."""

import json
import os
import signal
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Outside:
    """`kill_during`: operations whose worker is killed once, when their request has come in and before it is answered.
    `hold`: seconds that a request of that operation is held before it takes effect; `hold_undoing`: until when one that
    undoes it is, and `undoing` says that it has come in."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.undone: Counter[str] = Counter()
        self.keys: dict[str, str] = {}
        self.seen_keys: dict[str, set[str]] = {}
        self.requests: Counter[str] = Counter()
        self.kill_during: set[str] = set()
        self.kill_after: set[str] = set()
        self.hold: dict[str, float] = {}
        self.hold_undoing: dict[str, threading.Event] = {}
        self.undoing: set[str] = set()
        self.refuse: set[str] = set()
        self.refuse_undoing: set[str] = set()
        self.killed_at: dict[str, float] = {}
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def do(self, kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """One request: the effect, and who dies of it. None: refused."""
        label, pid = str(body["label"]), int(body["pid"])
        with self.lock:
            self.requests[label] += 1
            self.seen_keys.setdefault(label, set()).add(str(body["key"]))
            during = label in self.kill_during
            self.kill_during.discard(label)
        if during:
            self._kill(label, pid)
        time.sleep(self.hold.pop(label, 0))
        if label in self.refuse:
            return None
        with self.lock:
            if kind != "keys" or body["key"] not in self.keys:
                self.effects[label] += 1
            self.keys[str(body["key"])] = label
            after = label in self.kill_after
            self.kill_after.discard(label)
        if after:
            self._kill(label, pid)
        return {"id": f"{label}-{self.effects[label]}"}

    def _kill(self, label: str, pid: int) -> None:
        self.killed_at[label] = time.time()
        os.killpg(pid, signal.SIGKILL)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                kind = self.path.strip("/")
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if kind == "undo":
                    if body["label"] in outside.refuse | outside.refuse_undoing:
                        return self._answer(None, 409)
                    outside.undoing.add(body["label"])
                    if held := outside.hold_undoing.get(body["label"]):
                        held.wait(60)
                    outside.undone[body["label"]] += 1
                    return self._answer({})
                return self._answer(outside.do(kind, body), 409)

            def do_GET(self) -> None:
                key = parse_qs(urlsplit(self.path).query)["key"][0]
                label = outside.keys.get(key)
                self._answer({"id": f"{label}-1"} if label else None, 404)

            def _answer(self, body: dict[str, Any] | None, otherwise: int = 200) -> None:
                data = json.dumps(body or {}).encode()
                try:
                    self.send_response(200 if body is not None else otherwise)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    pass  # whoever asked is dead

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
