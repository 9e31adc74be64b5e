"""The trail of a turn, or of a handoff, that is not there yet: what its failed requests cost, since when they fail, and
what was learned.

It is written when an attempt ends without a turn, and read by the next one, on whichever worker: so failed requests
count once they are known, and nobody fails for ever unseen. It is put in the store beside the checkpoints; who loses it
loses counts, never a turn.
"""

import time
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from activities.errors import StoreUnavailable
from activities.store import Store
from workflows.keys import folder
from workflows.records import TurnRequest, Usage
from workflows.session_records import HandoffRequest
from workflows.side_records import SpentRequest

LATE_SECONDS = 300.0
"""So much later than it was due an attempt may begin, and still be one of those in a row."""


def _now() -> float:
    return time.time()


class Trail(BaseModel):
    """`since`: Unix time of the first failure of those in a row; an attempt that begins after `due` begins a new row,
    since nobody tried meanwhile. `quirks`: by number of the route. `cut`: answers that had begun and were never whole.
    `crashes`: attempts that ended with an error of ours. `tries`: whole answers that did not fit what a handoff asks
    for. `compaction`: the one that this turn has had."""

    model_config = ConfigDict(extra="ignore")

    since: float | None = None
    due: float | None = None
    requests: int = 0
    unusable: int = 0
    cut: int = 0
    crashes: int = 0
    tries: int = 0
    usage: Usage = Usage()
    quirks: dict[str, list[str]] = Field(default_factory=dict)
    compaction: dict[str, Any] | None = None
    _began: float = PrivateAttr(default_factory=_now)

    @classmethod
    async def load(cls, store: Store, request: TurnRequest | HandoffRequest) -> Self:
        """The trail of the attempts before this one; a new one with what the run knows of its servers."""
        found = await cls.of(store, request)
        for route, quirks in request.quirks.items():
            found.quirks[route] = sorted({*quirks, *found.quirks.get(route, ())})
        return found

    @classmethod
    async def of(cls, store: Store, request: TurnRequest | HandoffRequest | SpentRequest) -> Self:
        """The trail alone; an empty one where there is none, or none that can be read."""
        data = await store.get(_key(request))
        try:
            return cls.model_validate_json(data) if data is not None else cls()
        except ValidationError:
            return cls()

    async def save(self, store: Store, request: TurnRequest | HandoffRequest) -> None:
        """Writes it. A store that fails must not hide the failure that is being reported."""
        try:
            await store.put(_key(request), self.model_dump_json(exclude_defaults=True).encode())
        except StoreUnavailable:
            return

    def book(self, usage: Usage | None = None, *, unusable: bool = False, cut: bool = False, sent: bool = True) -> None:
        """Books a request that gave no turn, with its cost where it is known."""
        if sent:
            self.requests += 1
            self.usage = self.usage.plus(usage or Usage(requests=1))
        self.unusable += unusable
        self.cut += cut

    def one(self) -> Usage:
        """The usage of a request that was refused before it cost anything."""
        return Usage(requests=1)

    def failing(self) -> float:
        """For how many seconds requests have been failing without a pause in which nobody tried."""
        if self.since is None or self.due is None or self._began > self.due:
            return 0.0
        return _now() - self.since

    def failed(self, wait: float) -> float:
        """Books an attempt that failed and is made again after `wait` seconds; for how long that has been so."""
        now = _now()
        self.since, self.due = now - self.failing(), now + wait + LATE_SECONDS
        return now - self.since

    def learned(self, route: int) -> set[str]:
        """What was found out about a route's server."""
        return set(self.quirks.get(str(route), ()))

    def learn(self, route: int, quirk: str) -> None:
        """Remembers a quirk."""
        self.quirks[str(route)] = sorted({*self.learned(route), quirk})


def _key(request: TurnRequest | HandoffRequest | SpentRequest) -> str:
    turn = None if isinstance(request, HandoffRequest) else request.turn
    number = f"session-{request.session or 0:04d}" if turn is None else f"{turn:08d}"
    return f"{folder(request.thread)}/attempts/{request.branch}/{number}.json"
