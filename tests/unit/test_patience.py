"""How long a turn goes on asking: what passes is waited for, time in which nobody asked does not count, and answers
that were paid for nothing are booked and have a cap."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.errors import InvalidModelOutput, ModelTrouble, ModelUnavailable
from activities.gateway import MOST_CUT, QUICK_ATTEMPTS
from activities.manifest import Caps, Model
from activities.store import open_store
from activities.trail import LATE_SECONDS, Trail
from activities.turn import TurnActivities
from tests.faults.plays import RESET, chunk, chunks, ended, error, respond, say, stream, text_item
from tests.faults.server import Asked, FaultServer, Play
from tests.unit.gateway_kit import USER, Desk
from workflows.records import Usage

LIMIT = 1800.0


def manifest_of(*models: Model) -> Any:
    """As much of a manifest as asking needs."""
    return SimpleNamespace(prompt="Be brief.", tools=[], file=SimpleNamespace(model=list(models), limits=Caps()))


class Clock:
    """The time that trails see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000.0
        monkeypatch.setattr("activities.trail.time", SimpleNamespace(time=lambda: self.now))

    def attempt(self, trail: Trail, *, pause: float, lasts: float = 1.0, wait: float | None = None) -> Any:
        """An attempt after a pause, on whichever worker, that fails: its trail, and the failure that ends it."""
        self.now += pause
        found = Trail.model_validate_json(trail.model_dump_json(exclude_defaults=True))
        self.now += lasts
        fails = ModelTrouble("no", retry_after=wait)
        activities: Any = TurnActivities(SimpleNamespace())  # type: ignore[arg-type]
        return found, activities._failed(fails, found, manifest_of(Model(model="m", unavailable_after=LIMIT)))


def test_time_in_which_nobody_asked_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    trail, failed = clock.attempt(Trail(), pause=0)
    assert isinstance(failed, ModelTrouble)
    trail, failed = clock.attempt(trail, pause=LIMIT + 60)  # no worker was there
    assert isinstance(failed, ModelTrouble)
    for ends in (ModelTrouble, ModelTrouble, ModelUnavailable):
        trail, failed = clock.attempt(trail, pause=60, lasts=700)  # a server that hangs
        assert isinstance(failed, ends)


def test_a_wait_that_the_server_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    trail, _ = clock.attempt(Trail(), pause=0, wait=890.0)
    trail, failed = clock.attempt(trail, pause=900, wait=890.0)
    assert isinstance(failed, ModelTrouble)
    trail, failed = clock.attempt(trail, pause=900)
    assert isinstance(failed, ModelUnavailable)


def test_a_trail_of_an_earlier_release_begins_anew() -> None:
    trail = Trail.model_validate({"since": time.time() - LIMIT, "requests": 3})
    assert trail.failed(0.0) < 60
    assert trail.requests == 3


async def test_a_context_is_made_smaller_for_another_route_only_once_the_first_has_failed_for_too_long() -> None:
    def plan(asked: Asked) -> Play:
        if asked.model == "big":
            return error(503)
        long = len(json.dumps(asked.body)) > 20_000
        return error(400, "too long", "context_length_exceeded") if long else say("from small")

    desk = {"id": "1.0", "provider_id": "a", "tool": "read_file", "arguments": "{}"}
    context = [
        USER,
        {"role": "assistant", "text": "", "calls": [desk]},
        {"role": "tool", "call": "1.0", "tool": "read_file", "text": "x" * 40_000},
    ]
    with FaultServer(plan) as server:
        asking = Desk(server)
        world: Any = SimpleNamespace(gateway=asking.gateway, router=asking.router, store=open_store("memory://"))
        request: Any = SimpleNamespace(thread="run.1", branch="b", turn=2)
        both = manifest_of(Model(model="big", unavailable_after=LIMIT), Model(model="small"))
        taking: Any = TurnActivities(world)
        trail, now = Trail(), time.time()
        environment = ActivityEnvironment()
        with pytest.raises(ModelTrouble):
            await environment.run(taking._ask, request, both, context, trail)
        assert trail.compaction is None
        trail.since, trail.due = now - LIMIT - 1, now + LATE_SECONDS
        reply = await environment.run(taking._ask, request, both, context, trail)
        await asking.gateway.close()
    assert (reply.text, trail.compaction is None) == ("from small", False)


CUT = {
    "a stream that is cut": ended(say("a long text that is cut off somewhere"), "cut", 4),
    "reasoning alone": ended(stream(chunk({"reasoning_content": "I should look first."})), "cut"),
    "a call": ended(stream(chunk({"tool_calls": [{"index": 0, "function": {"name": "crm__find"}}]})), "cut"),
    "an error inside": stream(chunk({"content": "half a text"}), {"error": {"message": "overloaded"}}),
    "what is no event": stream(chunk({"content": "half a text"}), "{"),
}


@pytest.mark.parametrize("name", CUT)
async def test_an_answer_that_began_is_booked_by_our_own_count(name: str) -> None:
    with FaultServer([CUT[name], say("good")]) as server:
        asking = Desk(server, {"price": {"input": 1.0, "output": 2.0}})
        try:
            await asking.ask()
        except ModelTrouble:
            assert name == "what is no event"
    spent = asking.trail.usage
    assert (spent.requests, spent.estimated) == (1, True)
    assert min(spent.input_tokens, spent.output_tokens, spent.cost_usd) > 0


async def test_the_servers_own_count_of_a_cut_answer_stands_and_what_never_began_costs_nothing_known() -> None:
    told = {**chunk({"content": "half"}), "usage": {"prompt_tokens": 70, "completion_tokens": 3}}
    half = ended(respond(text_item("a long text that is cut off somewhere")), "cut", 3)
    with FaultServer([stream(told, end="cut"), RESET, error(500), say("good")]) as server:
        asking = Desk(server)
        with pytest.raises(ModelTrouble):
            await asking.ask()
    assert asking.trail.usage == Usage(requests=3, input_tokens=70, output_tokens=3)
    assert asking.trail.cut == 1
    with FaultServer([half, respond(text_item("good"))]) as server:
        asking = Desk(server, {"api": "responses"})
        await asking.ask()
    assert (asking.trail.cut, asking.trail.usage.estimated) == (1, True)
    assert asking.trail.usage.input_tokens > 0


async def test_answers_that_are_cut_off_have_a_cap_over_all_attempts() -> None:
    with FaultServer([ended(stream(*chunks({"content": "half a text"})), "cut", 2)]) as server:
        asking = Desk(server)
        for _ in range(MOST_CUT - QUICK_ATTEMPTS):
            with pytest.raises(ModelTrouble):
                await asking.ask()
        with pytest.raises(InvalidModelOutput, match=f"{MOST_CUT} answers to this turn began and were cut off"):
            await asking.ask()
    assert server.requests() == MOST_CUT


async def test_a_server_that_drops_connections_is_asked_quickly_however_often_it_does() -> None:
    with FaultServer([RESET]) as server:
        asking = Desk(server)
        asking.trail.cut = MOST_CUT
        with pytest.raises(ModelTrouble):
            await asking.ask()
    assert (server.requests(), asking.trail.cut) == (QUICK_ATTEMPTS, MOST_CUT)
