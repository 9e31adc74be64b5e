"""Signs of life of an activity, and what one attempt tells the next by them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

from temporalio import activity

from workflows.messages import decode_json

BEAT_SECONDS = 1.0
AGES: ContextVar[dict[str, float]] = ContextVar("perdure_ages")


@contextlib.asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Says every second that this worker is alive, and to the next attempt how long claims have been waited for. What
    takes less than a second says nothing: that would be one more request to the server for each turn, which its end
    waits for."""
    told = activity.info().heartbeat_details
    waited: dict[str, float] = decode_json(told[0]) if told else {}

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            activity.heartbeat(*([waited] if waited else []))

    token, task = AGES.set(waited), asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        AGES.reset(token)


def ages() -> dict[str, float]:
    """For how many seconds the attempts of this activity have seen claims (see `Attempt`)."""
    return AGES.get({})
