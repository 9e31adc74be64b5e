"""A function in a process of its own, killed at its deadline with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

from activities.tools.child import BEGUN
from activities.tools.errors import ToolCrash, ToolError, ToolTimeout

_CHILD = Path(__file__).with_name("child.py")
_LENGTH = struct.Struct(">Q")
_FAREWELL = 2.0
"""Seconds that a process gets for its exit, once its result is here."""


async def run_apart(
    name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float
) -> object:
    """What `fn` gives. Raises `ToolTimeout` after `seconds`, `ToolCrash` when the process dies, and what `fn` raises.

    Arguments, credentials among them, go over a pipe: a process list shows command lines and environments.
    """
    request = _request(name, fn, args, kwargs, seconds)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", str(_CHILD), stdin=PIPE, stdout=PIPE, start_new_session=True, env=_environment()
    )
    limit, said = asyncio.timeout(seconds), bytearray()
    try:
        async with limit:
            answer = await _exchange(process, request, said)
    except TimeoutError:
        if not limit.expired():
            raise
        _kill_group(process)
        if not await _begun(process, said):
            raise ToolError(f"the tool {name} could not begin within {seconds:g} s; it was not run") from None
        raise ToolTimeout(seconds) from None
    finally:
        _kill_group(process)
        await asyncio.shield(process.wait())
    if answer is None and not said:
        raise ToolError(f"the process of the tool {name} died before it began ({_manner(process)}); it was not run")
    if answer is None:
        raise ToolCrash(f"the process of the tool {name} died without a result ({_manner(process)})")
    good, value = pickle.loads(answer)  # noqa: S301  written by our own child, from the operator's own code
    if good:
        result: object = value
        return result
    raise value


def frame(data: bytes) -> bytes:
    """Data with its length before it, as both ends of the pipe write it."""
    return _LENGTH.pack(len(data)) + data


def _request(name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float) -> bytes:
    """Two frames: how to get ready, in plain values, and the call, which needs the modules of the tools."""
    module, path = fn.__module__, fn.__qualname__
    if module == "__main__" or "<" in path:
        raise ToolCrash(
            f"the tool {name} ({module}.{path}) cannot run in a process of its own:"
            " it must stand at the top level of an importable module"
        )
    try:
        call = pickle.dumps((module, path, args, kwargs))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ToolCrash(f"the arguments of the tool {name} cannot be handed to its process: {error}") from error
    ready = {"path": [entry or str(Path.cwd()) for entry in sys.path], "seconds": seconds}
    return frame(pickle.dumps(ready)) + frame(call)


async def _exchange(process: Process, request: bytes, said: bytearray) -> bytes | None:
    """The answer, or None if the process died. `said` gets what came before the answer: nothing, or that the call has
    begun. The input stays open: its end tells the child that we are gone."""
    if process.stdin is None or process.stdout is None:
        raise ToolCrash("a process without pipes")
    with contextlib.suppress(ConnectionError):
        process.stdin.write(request)
        await process.stdin.drain()
    try:
        first = await process.stdout.readexactly(1)
        if first == BEGUN:
            said += first
            first = b""
        head = first + await process.stdout.readexactly(_LENGTH.size - len(first))
        answer = await process.stdout.readexactly(_LENGTH.unpack(head)[0])
    except asyncio.IncompleteReadError:
        await process.wait()
        return None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _FAREWELL)
    return answer


async def _begun(process: Process, said: bytearray) -> bool:
    """Whether a killed process had begun the call: its word may still be in the pipe."""
    if process.stdout is not None and not said:
        with contextlib.suppress(TimeoutError):
            said += await asyncio.wait_for(process.stdout.read(1), _FAREWELL)
    return bool(said)


def _kill_group(process: Process) -> None:
    """The child leads its group; whatever is left of it goes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _manner(process: Process) -> str:
    code = process.returncode or 0
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _environment() -> dict[str, str]:
    """The worker's, without its credentials: a tool gets only those that it asks for."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_CREDENTIAL_")}
