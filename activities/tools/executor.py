"""Runs tools so that none of them can stop the worker, and each ends at its deadline.

async              an event loop on a thread of its own; cancelled
plain, read        a thread; abandoned, and its place in the pool is free at once
plain, an effect   a process of its own; killed with all that it started
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from activities.tools.declaration import Tool
from activities.tools.errors import ToolCrash, ToolError, ToolTimeout
from activities.tools.isolation import run_apart
from activities.tools.loops import LoopThread
from activities.tools.operation import Operation

_LOG = logging.getLogger(__name__)
_LAG = 1.0
"""A loop that does not come round for this many seconds is blocked by a tool."""


class Executor:
    """Runs tools from one event loop, the caller's. At most `threads` plain reads run at once; others wait."""

    def __init__(self, threads: int = 16) -> None:
        self._slots = asyncio.Semaphore(threads)
        self._home: LoopThread | None = None

    async def run(self, tool: Tool, arguments: dict[str, Any], op: Operation, seconds: float) -> object:
        """The tool's result for these JSON arguments.

        Raises `pydantic.ValidationError` for arguments that do not fit, `ToolTimeout` after `seconds`, `ToolCrash`, and
        whatever the tool raises. Cancelling the caller cancels the tool, or kills its process.
        """
        bound = tool.bind(arguments)
        if tool.takes_op:
            bound["op"] = op
        return await self._start(tool.name, tool.fn, (), bound, seconds, apart=tool.effect != "read")

    async def call(self, fn: Callable[..., Any], *args: Any, seconds: float, effect: bool = True) -> object:
        """What a lookup (`effect=False`) or a compensation gives. Raises as `run` does."""
        return await self._start(fn.__qualname__, fn, args, {}, seconds, apart=effect)

    def close(self) -> None:
        """Ends the thread of the async tools. Processes end with the calls that wait for them."""
        home, self._home = self._home, None
        if home:
            home.close()

    async def _start(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seconds: float,
        apart: bool,
    ) -> object:
        if inspect.iscoroutinefunction(fn):
            return await self._on_loop(name, fn, args, kwargs, seconds)
        if apart:
            return await run_apart(name, fn, args, kwargs, seconds)
        return await self._in_thread(name, fn, args, kwargs, seconds)

    async def _on_loop(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float
    ) -> object:
        home, ticket = self._free_loop(), threading.Lock()
        future = asyncio.wrap_future(home.submit(name, fn, args, kwargs, ticket))
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0 and not future.done():
                await asyncio.wait({future}, timeout=min(left, _LAG / 2))
                if self._leave_if_blocked(home) and ticket.acquire(blocking=False):  # it waits behind another: it moves
                    future.cancel()
                    home, ticket = self._free_loop(), threading.Lock()
                    future = asyncio.wrap_future(home.submit(name, fn, args, kwargs, ticket))
            if not future.done():
                if ticket.acquire(blocking=False):
                    raise ToolError(f"the tool {name} could not begin within {seconds:g} s; it was not run")
                raise ToolTimeout(seconds)
            return _outcome(name, future)
        finally:
            ticket.acquire(blocking=False)
            future.cancel()

    def _free_loop(self) -> LoopThread:
        if self._home:
            self._leave_if_blocked(self._home)
        if self._home is None:
            self._home = LoopThread()
        return self._home

    def _leave_if_blocked(self, home: LoopThread) -> bool:
        """Later calls get a new loop. Those that began on the blocked one go on there when, or if, it comes round."""
        if (lag := home.blocked_for()) <= _LAG:
            return False
        if home is self._home:
            _LOG.error(
                "the async tool %s has blocked its event loop for %.1f s; make it await, or a plain function",
                home.running(),
                lag,
            )
            self._home = None
        return True

    async def _in_thread(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float
    ) -> object:
        end = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise ToolTimeout(seconds) from None
        # A thread cannot be stopped. Its slot is given back all the same, or late tools would use up the pool.
        try:
            future = asyncio.wrap_future(_thread(name, fn, args, kwargs))
            done, _ = await asyncio.wait({future}, timeout=max(0.0, end - time.monotonic()))
        finally:
            self._slots.release()
        if not done:
            _LOG.warning("the tool %s has not ended in %g s; its thread is left behind", name, seconds)
            raise ToolTimeout(seconds)
        return _outcome(name, future)


def _thread(name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
    """Starts `fn` in a thread, in the caller's context variables."""
    outcome: Future[Any] = Future()
    outcome.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            outcome.set_result(context.run(fn, *args, **kwargs))
        except (StopIteration, asyncio.CancelledError) as error:  # a future cannot hold these
            outcome.set_exception(ToolCrash(f"the tool {name} let out {type(error).__name__}"))
        except Exception as error:  # noqa: BLE001  it is the caller's to judge
            outcome.set_exception(error)
        except BaseException as error:  # noqa: BLE001  an exit inside a tool is the tool's failure, not ours
            outcome.set_exception(ToolCrash(f"the tool {name} called for an exit: {type(error).__name__}"))

    threading.Thread(target=body, name=f"tool {name}", daemon=True).start()
    return outcome


def _outcome(name: str, future: asyncio.Future[Any]) -> object:
    """A tool that cancels itself has failed; its caller has not been cancelled."""
    if future.cancelled():
        raise ToolCrash(f"the tool {name} was cancelled from within")
    result: object = future.result()
    return result
