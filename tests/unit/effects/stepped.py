"""The sandwich, one step at a time: a store, a service and a clock at which a test may stop, break or kill an attempt.

Nothing here runs on an event loop: an attempt is a coroutine that a test drives with `send`, so that any interleaving
of any number of attempts, with a crash between any two steps, is one sequence of calls.
"""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from activities.attempts import Deed, Ended
from activities.canonical import digest
from activities.checkpoints import now_iso
from activities.effect_records import Claim, Prepared
from activities.effects import Sandwich, lease_of
from activities.errors import StoreUnavailable
from activities.ledger import Ledger
from activities.tools import ToolError
from activities.tools.errors import ToolTimeout
from workflows.records import Ref, Resolution

THREAD = "run-1.abcdefabcdef"
OPERATION = f"{THREAD}:act:1"
TIMEOUT = 30.0


@dataclass
class Pause:
    """A place where an attempt stands. `due`: not before that time."""

    name: str
    due: float = 0.0

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


@dataclass
class Clock:
    now: float = 0.0

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await Pause("sleep", self.now + seconds)


@dataclass
class SteppedStore:
    """A store in memory that stops before and after each write, and before each read."""

    held: dict[str, bytes] = field(default_factory=dict)

    async def put(self, key: str, data: bytes) -> None:
        raise AssertionError("the ledger only ever writes what is not there")

    async def put_new(self, key: str, data: bytes) -> bool:
        await Pause("store")
        new = self.held.setdefault(key, data) is data
        await Pause("store")
        return new

    async def get(self, key: str) -> bytes | None:
        await Pause("store")
        return self.held.get(key)

    async def keys(self, prefix: str) -> list[str]:
        return [key for key in self.held if key.startswith(prefix)]

    async def delete(self, prefix: str) -> int:
        raise AssertionError("the ledger deletes nothing")


@dataclass
class Service:
    """The world outside. `kind`: it honours `keys`, can be looked up (`lookup`), or does neither (`nothing`)."""

    kind: str
    clock: Clock
    seen: list[str] = field(default_factory=list)

    @property
    def effects(self) -> int:
        return len(set(self.seen)) if self.kind == "keys" else len(self.seen)

    async def act(self, key: str, mood: str, timeout: float) -> dict[str, str]:
        """What a tool does with it, before the deadline that an executor sets."""
        end = self.clock.now + timeout
        await Pause("act")
        if mood == "refuses":
            raise ToolError("no")
        if mood == "breaks before":
            raise ConnectionError
        if self.clock.now > end:
            raise ToolTimeout(timeout)
        self.seen.append(key)
        await Pause("act")
        if mood == "breaks after" or self.clock.now > end:
            raise ToolTimeout(timeout)
        return {"id": key}

    async def look(self, key: str) -> dict[str, str] | None:
        await Pause("look")
        return {"id": key} if key in self.seen else None


@dataclass
class Running:
    """One attempt under way."""

    coroutine: Coroutine[Pause, None, Ended]
    at: Pause | None = None
    ended: Ended | None = None
    failed: BaseException | None = None
    ages: dict[str, float] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        return self.ended is None and self.failed is None

    def go(self, fault: BaseException | None = None) -> None:
        """To the next place, or to the end."""
        try:
            self.at = self.coroutine.throw(fault) if fault else self.coroutine.send(None)
        except StopIteration as end:
            self.ended = end.value
        except Exception as error:  # noqa: BLE001 - what an attempt raises, the server retries
            self.failed = error

    def crash(self) -> None:
        """SIGKILL: nothing more of it runs."""
        self.coroutine.close()
        self.failed = self.failed or KeyboardInterrupt()


class World:
    """One operation, its ledger, and the service that it acts on."""

    def __init__(self, kind: str, effect: Any, on_unknown: Any = "review", key_valid: float = 1e9) -> None:
        self.kind, self.effect, self.on_unknown, self.key_valid = kind, effect, on_unknown, key_valid
        self.clock, self.store = Clock(), SteppedStore()
        self.ledger = Ledger(self.store, self.clock.sleep)
        self.service = Service(kind, self.clock)
        self.tokens = 0

    def start(
        self,
        mood: str = "well",
        resolution: Resolution | None = None,
        doubt: bool = False,
        last: bool = False,
        request: str = "this",
        timeout: float = TIMEOUT,
        after: Running | None = None,
    ) -> Running:
        """Another attempt, as the server starts them: each with a token of its own, and the time that the tool has
        where it runs. `after`: the attempt whose last sign of life it was given."""
        self.tokens += 1
        made = self.sandwich(f"token-{self.tokens}", mood, last, request, timeout)
        sandwich = replace(made, ages=dict(after.ages) if after else {})
        attempt = sandwich.doubt("every attempt was spent") if doubt else sandwich.perform(resolution)
        return Running(attempt, ages=sandwich.ages)

    def leave(self, word: Resolution) -> Running:
        """A person's word on an operation that a reset left."""
        self.tokens += 1
        return Running(self.sandwich(f"token-{self.tokens}", "well", False, "this").close(word))

    def sandwich(self, token: str, mood: str, last: bool, request: str, timeout: float = TIMEOUT) -> Sandwich:
        record = self.record(token, request, timeout)
        look: Callable[[], Coroutine[Any, Any, Any]] | None = None
        if self.kind == "lookup":
            look = lambda: self.service.look(record.idempotency_key)  # noqa: E731
        return Sandwich(
            ledger=self.ledger,
            thread=THREAD,
            record=record,
            deed=Deed(lambda: self.service.act(record.idempotency_key, mood, timeout), look, timeout),
            on_unknown=self.on_unknown,
            answer=_stored,
            to_text=_text,
            last=last,
            clock=self.clock.read,
            sleep=self.clock.sleep,
        )

    def record(self, token: str, request: str, timeout: float = TIMEOUT) -> Prepared:
        return Prepared(
            operation_id=OPERATION,
            tool="act",
            effect=self.effect,
            canonical_request={"tool": "act", "arguments": {"request": request}},
            request_digest=digest(request),
            fingerprint=f"fx:v1:{digest([request, OPERATION])}",
            idempotency_key=OPERATION,
            key_valid=self.key_valid,
            prepared_at=now_iso(),
            claim=Claim(attempt=1, token=token, lease=lease_of(timeout), claimed_at=now_iso()),
        )

    def finish(self, running: Running) -> None:
        """Runs an attempt to its end, with the clock going as it needs."""
        while running.live:
            if running.at is not None:
                self.clock.now = max(self.clock.now, running.at.due)
            running.go()

    def state(self) -> str:
        """Where the operation stands, read without stopping."""
        reading = self.ledger.standing(THREAD, OPERATION)
        try:
            while True:
                reading.send(None)
        except StopIteration as end:
            return str(end.value.state)


def store_fault() -> StoreUnavailable:
    return StoreUnavailable("the store is away for a moment")


async def _stored(text: str, result: str | None) -> Ref:
    return Ref(sha256=digest(text), bytes=len(text), preview=text[:100])


async def _text(value: Any) -> str:
    return str(value)
