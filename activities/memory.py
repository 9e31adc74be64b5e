"""Memory: facts that outlive a run. It is no part of any run's state: a fork or a replay finds it as it is now.

    memory/<scope>/<key>/<number>.json      every version; the highest number counts

A version is written with put-if-absent and holds the operation that wrote it, so an attempt that comes again finds what
the first one did, and does not write over what others remembered since.
"""

import asyncio
import contextlib
import json
import re
from typing import Any

from activities.checkpoints import now_iso
from activities.store import Store
from activities.tools.errors import ToolError
from workflows.keys import safe_id

VERSIONS = 20
VALUE_BYTES = 64 * 1024
NAME_CHARACTERS = 200
_DIGEST = re.compile(r"-[0-9a-f]{64}$")
_NUMBER = re.compile(r"(\d{8})\.json")


class Memory:
    """The facts of all scopes, over one store. Nothing outside `memory/` can be reached through it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def remember(self, scope: str, key: str, value: str, operation: str) -> int:
        """Writes a version and gives its number. Raises ToolError for what is empty or too long."""
        if len(value.encode("utf-8")) > VALUE_BYTES:
            raise ToolError(f"the value is longer than {VALUE_BYTES} bytes; remember less, or write a file")
        folder = _folder(scope, key)
        numbers = await self._numbers(folder)
        for number in reversed(numbers[-VERSIONS:]):
            with contextlib.suppress(ToolError):  # a damaged one keeps nobody from remembering it anew
                if ((await self._read(folder, number)) or {}).get("operation") == operation:
                    return number
        body = {"schema": 1, "scope": scope, "key": key, "value": value, "operation": operation, "at": now_iso()}
        data = json.dumps(body, ensure_ascii=False).encode("utf-8")
        number = (numbers or [0])[-1] + 1
        while not await self._store.put_new(f"{folder}/{number:08d}.json", data):
            number += 1
        return number

    async def recall(self, scope: str, key: str) -> dict[str, Any] | None:
        """The newest version: its value, and when it was written; None when there is none."""
        folder = _folder(scope, key)
        numbers = await self._numbers(folder)
        return await self._read(folder, numbers[-1]) if numbers else None

    async def keys(self, scope: str) -> list[str]:
        """The keys of a scope, by name."""
        prefix = f"memory/{_part('scope', scope)}"
        folders = sorted({key.rpartition("/")[0] for key in await self._store.keys(prefix)})
        newest = [(folder, await self._numbers(folder)) for folder in folders]
        bodies = await asyncio.gather(
            *(self._read(folder, numbers[-1]) for folder, numbers in newest if numbers), return_exceptions=True
        )
        if wrong := [each for each in bodies if isinstance(each, BaseException) and not isinstance(each, ToolError)]:
            raise wrong[0]
        return sorted(str(body["key"]) for body in bodies if isinstance(body, dict))  # a damaged one hides no other

    async def _numbers(self, folder: str) -> list[int]:
        names = [key.rpartition("/")[2] for key in await self._store.keys(folder)]
        return sorted(int(match[1]) for name in names if (match := _NUMBER.fullmatch(name)))

    async def _read(self, folder: str, number: int) -> dict[str, Any] | None:
        data = await self._store.get(f"{folder}/{number:08d}.json")
        if data is None:
            return None
        try:
            body = json.loads(data)
            return body if isinstance(body["value"], str) and isinstance(body["key"], str) else None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ToolError(f"what is remembered there (version {number}) is damaged") from None


def _folder(scope: str, key: str) -> str:
    return f"memory/{_part('scope', scope)}/{_part('key', key)}"


def _part(what: str, name: str) -> str:
    if not 0 < len(name.strip()) <= len(name) <= NAME_CHARACTERS:
        raise ToolError(f"the {what} must be 1 to {NAME_CHARACTERS} characters long")
    if _DIGEST.search(name):
        raise ToolError(f"the {what} ends like a name that is stored by its digest; choose another one")
    return safe_id(name)
