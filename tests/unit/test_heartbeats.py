"""Heartbeats of our activities."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.testing import ActivityEnvironment

from activities import heartbeats


@pytest.mark.parametrize(("every", "wanted"), [(5.0, False), (0.01, True)])
async def test_only_what_takes_a_while_sends_heartbeats(
    every: float, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a request to the server that the end of the activity waits for."""
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", every)
    environment, beats = ActivityEnvironment(), list[int]()
    environment.on_heartbeat = lambda *_: beats.append(1)

    async def act() -> None:
        async with heartbeats.heartbeats():
            await asyncio.sleep(0.2)

    await environment.run(act)
    assert bool(beats) is wanted


async def test_an_attempt_is_told_how_long_those_before_it_have_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.01)
    ages: dict[str, float] = {}
    for waited in (4.0, 6.0):
        environment, beat = ActivityEnvironment(), asyncio.Future[Any]()
        (payload,) = DataConverter.default.payload_converter.to_payloads([ages])
        environment.info = replace(environment.info, heartbeat_details=[RawValue(payload)] if ages else [])

        def tell(told: Any = None, beat: "asyncio.Future[Any]" = beat) -> None:
            if not beat.done():
                beat.set_result(dict(told or {}))

        async def wait(beat: "asyncio.Future[Any]" = beat, waited: float = waited) -> Any:
            async with heartbeats.heartbeats():
                heartbeats.ages()["act:1#1"] = heartbeats.ages().get("act:1#1", 0.0) + waited
                return await beat

        environment.on_heartbeat = tell
        ages = await environment.run(wait)
    assert ages == {"act:1#1": 10.0}
