"""Heartbeats of our activities."""

import asyncio

import pytest
from temporalio.testing import ActivityEnvironment

from activities import execution


@pytest.mark.parametrize(("every", "wanted"), [(5.0, False), (0.01, True)])
async def test_only_what_takes_a_while_sends_heartbeats(
    every: float, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a request to the server that the end of the activity waits for."""
    monkeypatch.setattr(execution, "BEAT_SECONDS", every)
    environment, beats = ActivityEnvironment(), list[int]()
    environment.on_heartbeat = lambda *_: beats.append(1)

    async def act() -> None:
        async with execution.heartbeats():
            await asyncio.sleep(0.2)

    await environment.run(act)
    assert bool(beats) is wanted
