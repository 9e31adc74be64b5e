"""The health endpoint: `/live` (restart me when not) and `/ready` (send me no work when not), on a thread of its own.

live    the event loop turns, the SDK's core answers, and the slots are not all held by work that the server gave up
ready   live, and: not ending, every worker polls, and the Temporal service answered lately
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from workers.inflight import InFlight
from workers.watchdog import Watchdog

LOOP_SECONDS = 10.0
CORE_SECONDS = 60.0
SERVER_SECONDS = 20.0
_LOOK_EVERY = 5.0


class Health:
    """What is wrong with this worker, if anything. `slots`: by task queue, how many activities fit."""

    def __init__(
        self,
        client: Client,
        workers: Sequence[Worker],
        watchdog: Watchdog,
        inflight: InFlight,
        slots: Mapping[str, int],
        ending: Callable[[], bool],
    ) -> None:
        self._client, self._workers, self._watchdog = client, workers, watchdog
        self._inflight, self._slots, self._ending = inflight, slots, ending
        self._looked = self._answered = time.monotonic()

    async def look(self) -> None:
        """Asks the service again and again whether it is there; runs until it is cancelled."""
        while True:
            try:
                if await self._client.service_client.check_health(timeout=timedelta(seconds=3)):
                    self._answered = time.monotonic()
            except Exception:  # noqa: BLE001, S110 - whatever it is, the service has not answered
                pass
            self._looked = time.monotonic()
            await asyncio.sleep(_LOOK_EVERY)

    def dead(self) -> list[str]:
        """Why this process should be restarted."""
        found, now = [], time.monotonic()
        if (lag := self._watchdog.lag()) > LOOP_SECONDS:
            found.append(f"the event loop has not turned for {lag:.0f} s: {self._watchdog.blocker()}")
        elif now - self._looked > CORE_SECONDS:
            found.append(f"the client has not come back for {now - self._looked:.0f} s")
        for queue, count in self._inflight.wedged().items():
            if count >= self._slots.get(queue, count + 1):
                what = ", ".join(sorted({each.what for each in self._inflight if each.queue == queue}))
                found.append(f"all {count} slots of {queue} are held by work past its limit: {what}")
        return found

    def unready(self) -> list[str]:
        """Why this process should get no work."""
        found = self.dead()
        if self._ending():
            found.append("the worker is ending")
        found += [f"no poll on {worker.task_queue}" for worker in self._workers if not worker.is_running]
        if (age := time.monotonic() - self._answered) > SERVER_SECONDS:
            found.append(f"the Temporal service has not answered for {age:.0f} s")
        return found

    def figures(self) -> dict[str, Any]:
        """What runs here now."""
        what: dict[str, int] = {}
        for each in self._inflight:
            what[each.what] = what.get(each.what, 0) + 1
        return {"running": what, "loop_lag_seconds": round(self._watchdog.lag(), 3)}


class HealthServer(ThreadingHTTPServer):
    """Answers `/live` and `/ready` with 200 or 503, and the reasons as JSON."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], health: Health) -> None:
        super().__init__(address, _Answer)
        self.health = health
        threading.Thread(target=self.serve_forever, args=(0.1,), name="health", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = 5

    def do_GET(self) -> None:
        looks = {"/live": self.server.health.dead, "/ready": self.server.health.unready}
        look = looks.get(self.path.partition("?")[0].rstrip("/"))
        problems = ["there is /live and /ready"] if look is None else look()
        code = 404 if look is None else 503 if problems else 200
        body = json.dumps({"ok": not problems, "problems": problems, **self.server.health.figures()}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing: probes come every few seconds."""
