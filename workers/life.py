"""The life of a worker process: it serves until it is told to end, and then ends in good order, or at its deadline.

first signal    polling stops at once; what is short finishes and is recorded
then            what still runs is cancelled: the server gives it to another worker
second signal   cancelled now
deadline        the process ends, whatever still runs; it is met by a thread, so that nothing can hold it up

The exit code is 0 in all four. A worker that ends by itself, with nobody having asked, has failed.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from temporalio.worker import Worker

from workers.inflight import InFlight

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

HURRY = 3.0
"""Seconds that a second signal leaves."""


class WorkerFailed(Exception):
    """A worker ended without having been told to."""


def finishing_time(grace: float) -> float:
    """How many of the `grace` seconds the work has to finish by itself; the rest is for handing it over."""
    return max(grace * 0.6, grace - 5)


class Ending:
    """The end of this process, asked for by SIGTERM or SIGINT and due `grace` seconds later."""

    def __init__(self, grace: float, last_words: Callable[[], str] = str) -> None:
        self._grace, self._last_words = grace, last_words
        self._loop = asyncio.get_running_loop()
        self.asked, self.hurried = asyncio.Event(), asyncio.Event()
        self._begun = False

    def listen(self) -> None:
        """Takes the signals. Not by the loop's own way: that would wait for a loop that is blocked."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.begin())

    def begin(self) -> None:
        """The first time: asks for the end, and sets its deadline. Again: hurries."""
        again, self._begun = self._begun, True
        deadline = threading.Timer(HURRY if again else self._grace, self._end)
        deadline.daemon = True
        deadline.start()
        self._loop.call_soon_threadsafe((self.hurried if again else self.asked).set)

    def _end(self) -> None:
        sys.stderr.write(f"perdure worker: the time is over, the process ends now{self._last_words()}\n")
        sys.stderr.flush()
        os._exit(0)

    async def unless_asked(self, work: Awaitable[T]) -> T | None:
        """The result of the work; None when the end was asked for first, and the work was cancelled."""
        task, asked = asyncio.ensure_future(work), asyncio.ensure_future(self.asked.wait())
        try:
            await asyncio.wait([task, asked], return_when=asyncio.FIRST_COMPLETED)
            return None if self.asked.is_set() else await task
        finally:
            task.cancel()
            asked.cancel()


async def serve(workers: Sequence[Worker], ending: Ending, inflight: InFlight) -> None:
    """Runs the workers until the end is asked for, and sees them out. Raises WorkerFailed when one gave up first."""
    runs: list[asyncio.Task[Any]] = [asyncio.ensure_future(worker.run()) for worker in workers]
    asked = asyncio.ensure_future(ending.asked.wait())
    await asyncio.wait([asked, *runs], return_when=asyncio.FIRST_COMPLETED)
    failed = not asked.done()
    if failed:
        asked.cancel()
        ending.begin()
    hurry = asyncio.ensure_future(_hurry(ending, inflight))
    downs = [asyncio.ensure_future(worker.shutdown()) for worker in workers]
    ends = await asyncio.gather(*runs, return_exceptions=True)
    hurry.cancel()
    await asyncio.gather(*downs, hurry, return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    if failed:
        said = f"{type(errors[0]).__name__}: {errors[0]}" if errors else "it stopped polling"
        raise WorkerFailed(f"the worker gave up: {said}")
    for error in errors:
        _LOG.warning("a worker ended with %s: %s", type(error).__name__, error)


async def _hurry(ending: Ending, inflight: InFlight) -> None:
    await ending.hurried.wait()
    while True:  # and what was just about to begin
        if stopped := inflight.cancel():
            _LOG.warning("handed over at the second signal: %s", ", ".join(stopped))
        await asyncio.sleep(0.2)
