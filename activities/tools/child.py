"""The other end of `isolation.run_apart`: one call, one answer, in a process of its own.

Started as a script, so that nothing but the standard library is imported before the parent's import path is known.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

_LENGTH = struct.Struct(">Q")
BEGUN = b"!"
"""Written before the call: what dies without it has surely done nothing."""
LEADS_ITS_GROUP = True
"""For tools that start processes: their group is this call's alone."""
_GRACE = 1.0
"""Seconds after the deadline at which the child ends itself, should the parent not have done it."""


def main() -> None:
    """Reads a call from the standard input and writes its outcome to what was the standard output."""
    # The tool may print: that goes to the log, and it reads nothing.
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    source = os.fdopen(requests, "rb", buffering=0)
    ready = pickle.loads(_frame(source))  # noqa: S301  the parent is our own worker
    sys.path[:] = ready["path"]
    call = _frame(source)
    done = threading.Event()
    threading.Thread(target=_watch, args=(requests, ready["seconds"] + _GRACE, done), daemon=True).start()
    with os.fdopen(answers, "wb", buffering=0) as out:
        answer = _carry(*_call(call, lambda: out.write(BEGUN)))
        done.set()
        _all(out, _LENGTH.pack(len(answer)) + answer)


def _all(out: Any, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _frame(source: Any) -> bytes:
    length = _LENGTH.unpack(_exactly(source, _LENGTH.size))[0]
    return _exactly(source, length)


def _exactly(source: Any, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = source.read(min(count - len(data), 1 << 20))
        if not piece:
            sys.exit("the worker ended before it had sent its request")
        data += piece
    return bytes(data)


def _watch(requests: int, seconds: float, done: threading.Event) -> None:
    """Ends the whole group when the parent is gone (the pipe closes) or too late: an effect has no life of its own."""
    select.select([requests], [], [], seconds)
    if not done.is_set():
        os.killpg(0, signal.SIGKILL)


def _call(request: bytes, begin: Callable[[], object]) -> tuple[bool, Any]:
    from activities.tools.errors import ToolCrash, ToolError

    try:
        module, path, args, kwargs = pickle.loads(request)  # noqa: S301
        found: Any = importlib.import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
    except Exception as error:  # noqa: BLE001  any code may run in an import
        _log(error)
        said = f"{type(error).__name__}: {error}"
        return False, ToolError(f"its module cannot be loaded in its own process, so it was not run ({said})")
    try:
        begin()
        return True, found(*args, **kwargs)
    except ToolError as error:
        return False, error
    except Exception as error:  # noqa: BLE001  it is the parent's to judge
        _log(error)
        return False, error
    except BaseException as error:  # noqa: BLE001  an exit inside a tool is the tool's failure
        _log(error)
        return False, ToolCrash(f"the tool called for an exit: {type(error).__name__}")


def _carry(good: bool, value: Any) -> bytes:
    """An outcome as bytes that surely come out again; one that cannot be carried is described."""
    from activities.tools.errors import ToolCrash, ToolError

    try:
        data = pickle.dumps((good, value))
        pickle.loads(data)  # noqa: S301  exceptions with arguments of their own often fail only here
    except Exception as problem:  # noqa: BLE001  any code may run in a pickle
        if isinstance(value, ToolError):
            return pickle.dumps((False, ToolError(str(value))))
        kind = type(value).__name__
        text = f"the tool returned a {kind}, which no process can hand to another" if good else f"{kind}: {value}"
        return pickle.dumps((False, ToolCrash(f"{text} ({type(problem).__name__})" if good else text)))
    return data


def _log(error: BaseException) -> None:
    """Where it happened, for the worker's log. Not the message: it may quote a secret, and the parent redacts it."""
    sys.stderr.write("".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__name__} in a tool\n")


if __name__ == "__main__":
    main()
