"""What files held before operations changed them, in the store: so that any machine can undo what another one did."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from activities.canonical import sha256
from activities.errors import WorkspaceUnavailable
from activities.store import Store
from activities.tools import undo
from workflows.keys import earlier_key, file_key


class Earlier(BaseModel):
    """The digest of the earlier content; None: there was no file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str | None = None


class EarlierContents:
    """The records that tools keep on their machine (`tools.undo`), over the workspaces of one worker and a store."""

    def __init__(self, store: Store, workspaces: Path) -> None:
        self._store, self._workspaces = store, workspaces

    async def keep(self, thread: str, operation: str) -> None:
        """Stores the record of an operation, if there is one on this machine: before its outcome counts."""
        found = undo.find(self._workspaces / thread, operation)
        if found is None:
            return
        digest = None
        if found.content is not None:
            digest = sha256(found.content)
            await self._store.put_new(file_key(thread, digest), found.content)
        record = Earlier(sha256=digest).model_dump()
        await self._store.put(earlier_key(thread, operation), json.dumps(record).encode())

    async def fetch(self, thread: str, operation: str) -> None:
        """Brings the record to this machine, if there is one. Raises WorkspaceUnavailable when its content is gone."""
        data = await self._store.get(earlier_key(thread, operation))
        if data is None or undo.find(self._workspaces / thread, operation) is not None:
            return
        digest = Earlier.model_validate_json(data).sha256
        content = None if digest is None else await self._store.get(file_key(thread, digest))
        if digest is not None and (content is None or sha256(content) != digest):
            raise WorkspaceUnavailable(f"{file_key(thread, digest)} is missing from the store, or damaged")
        undo.put(self._workspaces / thread, operation, undo.Kept(content))
