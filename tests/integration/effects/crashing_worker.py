"""A worker that kills itself, once, at a write to the store. Product code carries no hook for it: the store is wrapped.

CRASH_AT is `before:PATTERN` or `after:PATTERN`, a regular expression over keys; CRASH_MARK is a file that says that it
has happened, so that of several such workers one dies once.
"""

import os
import re
import signal
import time

from activities.store import LocalStore
from scripts.cli import main

WHEN, _, PATTERN = os.environ.get("CRASH_AT", "never:x").partition(":")
MARK = os.environ.get("CRASH_MARK", "")
put_new = LocalStore.put_new


def crash_once() -> None:
    try:
        handle = os.open(MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(handle, str(time.time()).encode())
    os.fsync(handle)
    os.kill(os.getpid(), signal.SIGKILL)


async def crashing(self: LocalStore, key: str, data: bytes) -> bool:
    here = re.search(PATTERN, key) is not None
    if here and WHEN == "before":
        crash_once()
    new = await put_new(self, key, data)
    if here and WHEN == "after":
        crash_once()
    return new


if __name__ == "__main__":
    LocalStore.put_new = crashing  # type: ignore[method-assign]
    main()
