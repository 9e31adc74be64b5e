"""Which route answers a turn: the bundle's models in order, by kind of failure, past servers that have just failed.

What is remembered of a server's health stays in this process: it saves a request that would fail, and changes nothing
that is recorded beyond which route answered.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from activities.errors import (
    ContextOverflow,
    Failure,
    InvalidModelOutput,
    ModelRequestRejected,
    ModelTrouble,
    RateLimited,
)
from activities.gateway import Gateway
from activities.manifest import FailureKind, Model
from activities.noting import note
from activities.reply import Ask, Reply, Sink
from activities.trail import Trail
from workflows.records import Usage

FAILURES_TO_OPEN = 2
OPEN_SECONDS = 30.0
MOST_OPEN_SECONDS = 900.0

KINDS: dict[type[Failure], FailureKind] = {
    ModelTrouble: "trouble",
    RateLimited: "rate_limit",
    ModelRequestRejected: "rejected",
    ContextOverflow: "overflow",
    InvalidModelOutput: "invalid",
}

Order = tuple[type[Failure], ...]
"""Which failure of several routes counts: the first kind in it that one of them ended with."""

SHRINK: Order = (ContextOverflow, ModelTrouble, RateLimited)
"""An overfull context is made smaller at once: where no later question is asked with it."""

WAIT: Order = (ModelTrouble, RateLimited, ContextOverflow)
"""What passes is waited for: a context that is made smaller stays so for all turns that follow."""

SPENT: Order = (ContextOverflow, RateLimited, ModelTrouble)
"""Trouble has lasted for too long, and ends the run if nothing else is left."""


@dataclass
class Circuit:
    """The health of the servers as this worker saw it. An open circuit is passed over for as long as it stays open."""

    _failed: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def failed(self, route: Model, error: Failure) -> None:
        """Books a failure that waiting may mend; a server that named a time is left alone until then."""
        if not isinstance(error, ModelTrouble | RateLimited):
            return
        key = _name(route)
        self._failed[key] = self._failed.get(key, 0) + 1
        wait = error.details[0] if isinstance(error, RateLimited) else _delay(error)
        if wait is None and self._failed[key] < FAILURES_TO_OPEN:
            return
        self._until[key] = time.monotonic() + min(wait or OPEN_SECONDS, MOST_OPEN_SECONDS)

    def answered(self, route: Model) -> None:
        """Books an answer: the circuit closes."""
        self._failed.pop(_name(route), None)
        self._until.pop(_name(route), None)

    def order(self, routes: Sequence[Model]) -> list[int]:
        """The routes to try, in the bundle's order, those with an open circuit last."""
        now = time.monotonic()
        return sorted(range(len(routes)), key=lambda index: self._until.get(_name(routes[index]), 0.0) > now)


class Router:
    """Asks one route after the other."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self.circuit = gateway, Circuit()

    async def reply(
        self,
        routes: Sequence[Model],
        ask: Ask,
        trail: Trail,
        until: float,
        sink: Sink,
        patience: float | None = None,
    ) -> Reply:
        """The first answer. Raises the failure that counts, of those that the routes ended with.

        `patience`: for so many seconds of failures what passes is waited for, before a context that one of the routes
        found too long is made smaller.
        """
        failures: list[Failure] = []
        stopped: Reply | None = None
        order = self.circuit.order(routes)
        for number in order:
            route, last = routes[number], number == order[-1]
            note(model=route.model)
            try:
                reply = await self._gateway.ask(number, route, ask, trail, until, sink)
            except Failure as error:
                self.circuit.failed(route, error)
                failures.append(error)
                if KINDS.get(type(error)) not in route.fall_back_on:
                    break
                continue
            self.circuit.answered(route)
            if reply.stopped is None or reply.stopped not in route.fall_back_on or last:
                return reply
            trail.book(reply.usage)
            stopped = replace(reply, usage=Usage())
        if stopped is not None:
            note(model=routes[stopped.route].model)
            return stopped
        if patience is None:
            raise most_hopeful(failures, SHRINK)
        raise most_hopeful(failures, WAIT if trail.failing() < patience else SPENT)


def most_hopeful(failures: Sequence[Failure], order: Order) -> Failure:
    """The failure that counts: by kind, then the one that passes soonest; else the first route's own."""
    for kind in order:
        found = [failure for failure in failures if isinstance(failure, kind)]
        if found:
            return min(found, key=lambda failure: _delay(failure) or 0.0)
    return failures[0]


def _delay(error: Failure) -> float | None:
    return error.next_retry_delay.total_seconds() if error.next_retry_delay is not None else None


def _name(route: Model) -> str:
    return f"{route.base_url_env} {route.api_key_env} {route.model}"
