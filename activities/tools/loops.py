"""An event loop on a thread of its own, for async tools: what blocks there blocks no poll, heartbeat or stream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from activities.tools.errors import ToolCrash


class LoopThread:
    """Runs coroutines on its own loop. Its thread is a daemon: a blocked one never holds up the worker's exit."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ping: tuple[float, Future[None]] | None = None
        self._thread = threading.Thread(target=self._serve, name="async tools", daemon=True)
        self._thread.start()

    def submit(
        self,
        name: str,
        fn: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        ticket: threading.Lock,
    ) -> Future[Any]:
        """Starts `fn`, in the caller's context variables, when the loop comes round. Cancelling the future cancels it.

        Whoever takes the `ticket` first decides whether it begins: a task that is cancelled before its first step, but
        from another thread, takes that step all the same.
        """

        async def call() -> Any:
            if not ticket.acquire(blocking=False):
                raise asyncio.CancelledError
            task = asyncio.current_task()
            if task:
                task.set_name(name)
            try:
                return await fn(*args, **kwargs)
            except (SystemExit, KeyboardInterrupt) as error:  # would end the loop under all other tools
                raise ToolCrash(f"the tool {name} called for an exit: {type(error).__name__}") from error

        return asyncio.run_coroutine_threadsafe(call(), self._loop)

    def blocked_for(self) -> float:
        """Seconds that the loop has not come round, since somebody last asked."""
        if self._ping is None or self._ping[1].done():
            answer: Future[None] = Future()
            self._ping = (time.monotonic(), answer)
            self._loop.call_soon_threadsafe(answer.set_result, None)
            return 0.0
        return time.monotonic() - self._ping[0]

    def running(self) -> str:
        """The name of the call that holds the loop at this moment."""
        task = asyncio.current_task(self._loop)
        return task.get_name() if task else "nothing"

    def close(self, wait: float = 1.0) -> None:
        """Cancels what runs and ends the thread, within `wait` seconds unless a tool blocks it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(wait)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
