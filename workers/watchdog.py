"""Watches the event loop that polls, heartbeats and streams, from a thread of its own, and says who blocks it.

No tool's code runs on that loop, but its guard, its types and its results do. A tool that blocks the loop of the async
tools is named by the executor.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

_LOG = logging.getLogger(__name__)
LAG = 1.0
"""Seconds without a turn of the loop after which it counts as blocked."""
_EVERY = 0.25


class Watchdog:
    """Of the loop that runs where it is made. `name` gives what a task of that loop does, for people."""

    def __init__(self, name: Callable[["asyncio.Task[Any] | None"], str | None], lag: float = LAG) -> None:
        self._loop, self._name, self._lag = asyncio.get_running_loop(), name, lag
        self._thread_id = threading.get_ident()
        self._turned = time.monotonic()
        self._asked = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self.worst = 0.0

    def start(self) -> None:
        """Begins to watch."""
        self._turned = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def lag(self) -> float:
        """Seconds since the loop last came round; about 0 when all is well. May be called from any thread."""
        return max(0.0, time.monotonic() - self._turned) if self._asked else 0.0

    def _watch(self) -> None:
        told = False
        while not self._stop.wait(_EVERY):
            if not self._asked:
                self._asked, self._turned = True, time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # the loop is closed: the process ends
                told = False
            elif (lag := self.lag()) > self._lag and not told:
                told = True
                _LOG.error("the event loop has not turned for %.1f s: %s", lag, self.blocker())

    def _answer(self) -> None:
        self.worst = max(self.worst, time.monotonic() - self._turned)
        self._asked = False

    def blocker(self) -> str:
        """What holds the loop at this moment: the tool or activity, and the line of code."""
        what = self._name(asyncio.current_task(self._loop))
        frame = sys._current_frames().get(self._thread_id)  # there is no other way to see what a thread does
        lines = traceback.extract_stack(frame) if frame else []
        where = f"{lines[-1].filename}:{lines[-1].lineno} in {lines[-1].name}" if lines else "unknown code"
        return f"{what or 'the worker itself'} blocks it, at {where}"
