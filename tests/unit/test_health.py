"""The health endpoint: each thing that keeps a worker from its work is named, on the right one of the two paths."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any, cast

import pytest

from workers import health as module
from workers.health import LOOP_SECONDS, SERVER_SECONDS, Health, HealthServer
from workers.inflight import LATE, InFlight, Running


class Parts:
    """A worker that is well, until a test says otherwise."""

    def __init__(self) -> None:
        self.lag, self.ending, self.answers = 0.0, False, True
        self.inflight, self.asked_well = InFlight(), asyncio.Event()
        self.workers = [SimpleNamespace(task_queue=queue, is_running=True) for queue in ("q", "q-tools")]
        watchdog = SimpleNamespace(lag=lambda: self.lag, blocker=lambda: "tool x blocks it")
        client = SimpleNamespace(service_client=SimpleNamespace(check_health=self._check))
        self.health = Health(
            *cast("tuple[Any, Any, Any]", (client, self.workers, watchdog)),
            self.inflight,
            {"q": 2, "q-tools": 2},
            lambda: self.ending,
        )

    async def _check(self, **_: Any) -> bool:
        if not self.answers:
            raise ConnectionError("gone")
        self.asked_well.set()
        return True

    def run(self, what: str, *, late: float) -> None:
        """An activity on the tools' queue that began a minute and `late` seconds ago and had a minute."""
        since = time.monotonic() - 60 - late
        each = Running(what=what, queue="q-tools", run="r", task=cast("Any", None), since=since, limit=60)
        self.inflight._running[len(self.inflight._running)] = each


def test_a_worker_that_is_well_is_live_and_ready() -> None:
    parts = Parts()
    parts.run("tool a", late=LATE - 5)
    parts.run("tool b", late=LATE - 5)
    assert (parts.health.dead(), parts.health.unready()) == ([], [])


def test_a_worker_that_does_not_poll_is_not_ready() -> None:
    parts = Parts()
    parts.workers[1].is_running = False
    assert (parts.health.dead(), parts.health.unready()) == ([], ["no poll on q-tools"])


def test_a_worker_that_ends_is_not_ready() -> None:
    parts = Parts()
    parts.ending = True
    assert (parts.health.dead(), parts.health.unready()) == ([], ["the worker is ending"])


def test_a_worker_whose_slots_are_all_held_by_work_past_its_limit_makes_no_progress() -> None:
    parts = Parts()
    parts.run("tool a", late=LATE + 5)
    assert parts.health.dead() == [], "one slot is left"
    parts.run("tool b", late=LATE + 5)
    [said] = parts.health.dead()
    assert "all 2 slots of q-tools" in said
    assert "tool a, tool b" in said
    assert parts.health.unready() == [said]


def test_a_blocked_loop_is_dead_and_named() -> None:
    parts = Parts()
    parts.lag = LOOP_SECONDS + 1
    assert "tool x blocks it" in parts.health.dead()[0]


async def test_a_service_that_does_not_answer_makes_it_unready_and_one_that_does_ready_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY", 0.01)
    parts = Parts()
    parts.answers = False
    parts.health._answered -= SERVER_SECONDS + 1
    looking = asyncio.create_task(parts.health.look())
    await asyncio.sleep(0.05)
    assert ["has not answered" in said for said in parts.health.unready()] == [True]
    assert parts.health.dead() == [], "a restart would not mend it"
    parts.answers = True
    await asyncio.wait_for(parts.asked_well.wait(), 10)
    await asyncio.sleep(0)
    looking.cancel()
    assert parts.health.unready() == []


def test_the_answer_is_503_with_the_reasons() -> None:
    parts = Parts()
    parts.workers[0].is_running = False
    with HealthServer(("127.0.0.1", 0), parts.health) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/live") as answer:
            assert json.load(answer)["ok"]
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/ready")
    assert (caught.value.code, json.load(caught.value)["problems"]) == (503, ["no poll on q"])
