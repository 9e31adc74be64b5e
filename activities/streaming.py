"""The stream cache: what a model says, as it says it, for a screen somewhere. Nothing of it is in history.

Pieces go to `threads/<id>/<start>/stream/<branch>/<turn>/<attempt>/<n>.json`, a few times a second. Each holds its turn
and attempt, so a reader drops what a failed attempt had said. It may be deleted at any time: the checkpoint holds the
message of every turn that is done.
"""

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from activities.errors import StoreUnavailable, redact
from activities.store import Store
from workflows.keys import folder

FLUSH_SECONDS = 0.3
FLUSH_CHARACTERS = 4_000
MOST_PIECES = 2_000
KEPT_TURNS = 10
"""The words of older turns are deleted: their checkpoints hold them."""


@dataclass(frozen=True)
class Piece:
    """Some text of one attempt at one turn. `kind` is `text`, `reasoning`, `refusal` or `call`."""

    branch: str
    turn: int
    attempt: str
    number: int
    kind: str
    text: str


@dataclass
class StreamWriter:
    """Writes the pieces of a turn. `start` begins the next attempt at it; their names begin with `prefix`. A store that
    fails ends the showing, never the turn. The end of a text is held back while it could be a secret's beginning."""

    store: Store
    thread: str
    branch: str
    turn: int
    prefix: str
    secrets: list[str]
    attempt: str = ""
    _pending: list[tuple[str, str]] = field(default_factory=list)
    _attempts: int = 0
    _number: int = 0
    _since: float = 0.0
    _broken: bool = False

    async def start(self) -> None:
        """A new attempt: what was not yet written of the last one is dropped."""
        self._attempts += 1
        self.attempt, self._pending, self._number = f"{self.prefix}-{self._attempts:03d}", [], 0
        self._since = time.monotonic()

    async def __call__(self, kind: str, text: str) -> None:
        """Takes a piece."""
        if self._pending and self._pending[-1][0] == kind:
            self._pending[-1] = (kind, self._pending[-1][1] + text)
        else:
            self._pending.append((kind, text))
        waiting = sum(len(piece) for _, piece in self._pending)
        if waiting >= FLUSH_CHARACTERS or time.monotonic() - self._since >= FLUSH_SECONDS:
            await self.flush()

    async def flush(self, *, end: bool = False) -> None:
        """Writes what is there; at the `end` all of it."""
        pieces = [(kind, redact(text, self.secrets)) for kind, text in self._pending]
        self._pending, self._since = [], time.monotonic()
        if pieces and not end and (hold := _begun(pieces[-1][1], self.secrets)):
            kind, text = pieces.pop()
            self._pending = [(kind, text[-hold:])]
            pieces.append((kind, text[:-hold]))
        if (found := [[kind, text] for kind, text in pieces if text]) and not self._broken:
            await self._put(found)

    async def _put(self, pieces: list[list[str]]) -> None:
        if self._number >= MOST_PIECES:
            return
        self._number += 1
        body = {"turn": self.turn, "attempt": self.attempt, "number": self._number, "pieces": pieces}
        key = f"{_folder(self.thread)}/{self.branch}/{self.turn:08d}/{self.attempt}/{self._number:06d}.json"
        try:
            if self._number == 1 and self.turn > KEPT_TURNS:
                await self.store.delete(f"{_folder(self.thread)}/{self.branch}/{self.turn - KEPT_TURNS:08d}")
            await self.store.put(key, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
        except StoreUnavailable:
            self._broken = True


def _begun(text: str, secrets: list[str]) -> int:
    """How many characters at the end of the text are the beginning of a secret."""
    longest = min(len(text), max(map(len, secrets), default=1) - 1)
    for size in range(longest, 0, -1):
        if any(secret.startswith(text[-size:]) for secret in secrets):
            return size
    return 0


_KEY = re.compile(r"/stream/([^/]+)/(\d+)/([^/]+)/(\d+)\.json$")


async def read_stream(store: Store, thread: str, branch: str | None = None, turn: int | None = None) -> list[Piece]:
    """What is cached of a thread, of a branch or of one turn, in order; of each turn only its last attempt."""
    keys: dict[tuple[str, int], dict[str, list[tuple[int, str]]]] = {}
    for key in await store.keys(_folder(thread)):
        match = _KEY.search(key)
        if match and branch in (None, match[1]) and turn in (None, int(match[2])):
            attempts = keys.setdefault((match[1], int(match[2])), {})
            attempts.setdefault(match[3], []).append((int(match[4]), key))
    found: list[Piece] = []
    for (on, number), attempts in sorted(keys.items(), key=lambda entry: entry[0][1]):
        last = max(attempts)
        for order, key in sorted(attempts[last]):
            found += _pieces(await store.get(key), on, number, last, order)
    return found


def _pieces(data: bytes | None, branch: str, turn: int, attempt: str, order: int) -> list[Piece]:
    """The pieces of one file; none where it is gone or is something else."""
    try:
        body: Any = json.loads(data or b"{}")
        return [Piece(branch, turn, attempt, order, str(kind), str(text)) for kind, text in body.get("pieces", [])]
    except (ValueError, TypeError, AttributeError):
        return []


def _folder(thread: str) -> str:
    return f"{folder(thread)}/stream"
