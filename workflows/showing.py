"""What a run shows while it lives: Current Details, search attributes, and the clock that counts its working time."""

import asyncio
from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from workflows.display import details
from workflows.state import RunState

STATUS = SearchAttributeKey.for_keyword("PerdureStatus")
WAITING_ON = SearchAttributeKey.for_keyword_list("PerdureWaitingOn")
BUNDLE = SearchAttributeKey.for_keyword("PerdureBundle")
TURN = SearchAttributeKey.for_int("PerdureTurn")
BUNDLE_DIGEST = SearchAttributeKey.for_keyword("PerdureBundleDigest")
COST = SearchAttributeKey.for_float("PerdureCost")
SINCE = SearchAttributeKey.for_datetime("PerdureSince")
SHOW_EVERY = 10
"""Turns between two updates of the search attributes while nothing else changes: each is an event."""


class Showing:
    """`state` is the run; `ended` its final status."""

    state: RunState
    ended: str | None
    shown: tuple[Any, ...]
    _drawing: bool = False
    since: datetime | None = None
    """Since when the run has been in the state that is shown; since the oldest open request where there is one."""

    def shown_status(self) -> str:
        """The status of the run, or of its result."""
        return self.ended or self.state.status()

    def publish(self) -> None:
        """Current Details, and the search attributes where the namespace has them and they changed."""
        self.publish_attributes()
        self._draw()

    def draw_soon(self) -> None:
        """Current Details, once for all messages that came together: a flood of them must not spend the time that one
        workflow task has. It is no command, so when it happens is of no matter to a replay."""
        if not self._drawing:
            self._drawing = True
            asyncio.get_running_loop().call_soon(self._draw)

    def _draw(self) -> None:
        self._drawing = False
        workflow.set_current_details(details(self.state, workflow.info().workflow_id, self.shown_status()))

    def publish_attributes(self) -> None:
        """The search attributes, where the namespace has them and they changed."""
        state, status = self.state, self.shown_status()
        self._clock(status)
        if state.opening is None or not state.opening.search_attributes:
            return
        waiting = state.waiting_on()
        shown = (status, waiting, state.used.turns // SHOW_EVERY)
        if shown != self.shown:
            if shown[:2] != self.shown[:2]:
                self.since = min((request.asked_at for request in state.requests.open()), default=workflow.now())
            self.shown = shown
            bundle = f"{state.opening.bundle.name}@{state.opening.bundle.version}"
            digest = [BUNDLE_DIGEST.value_set(state.opening.bundle.digest)] if state.opening.shows_digest else []
            workflow.upsert_search_attributes(
                [
                    STATUS.value_set(status),
                    WAITING_ON.value_set(waiting) if waiting else WAITING_ON.value_unset(),
                    BUNDLE.value_set(bundle),
                    TURN.value_set(state.used.turns),
                    COST.value_set(state.usage.cost_usd),
                    SINCE.value_set(self.since or workflow.now()),
                    *digest,
                ]
            )

    def _clock(self, status: str) -> None:
        self.tick()
        self.state.busy_since = workflow.now() if status == "running" else None

    def tick(self) -> None:
        """Books the working time up to now."""
        now: datetime = workflow.now()
        if self.state.busy_since is not None:
            self.state.used.seconds += (now - self.state.busy_since).total_seconds()
            self.state.busy_since = now
