"""How long a turn goes on asking: what passes is waited for, time in which nobody asked does not count, and answers
that were paid for nothing are booked and have a cap."""

import json
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.errors import ContextOverflow, InvalidModelOutput, ModelTrouble, ModelUnavailable, RateLimited
from activities.gateway import MOST_CUT, MOST_UNUSABLE, QUICK_ATTEMPTS
from activities.handoff import HandoffActivities
from activities.judgement import HANDOFF
from activities.manifest import Caps, Model
from activities.patience import failed
from activities.store import open_store
from activities.trail import LATE_SECONDS, Trail
from activities.turn import TurnActivities
from tests.faults.plays import RESET, chunk, chunks, ended, error, json_body, respond, say, stream, text_item
from tests.faults.server import Asked, FaultServer, Play
from tests.unit.gateway_kit import USER, Desk
from workflows.gates import failure_of
from workflows.records import BundleRef, Head, Usage
from workflows.session_records import HandoffRequest

LIMIT = 1800.0
TOLD = {"prompt_tokens": 1000, "completion_tokens": 50}


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
        return found, failed(fails, found, LIMIT)


def test_time_in_which_nobody_asked_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    trail, ends = clock.attempt(Trail(), pause=0)
    assert isinstance(ends, ModelTrouble)
    trail, ends = clock.attempt(trail, pause=LIMIT + 60)  # no worker was there
    assert isinstance(ends, ModelTrouble)
    for kind in (ModelTrouble, ModelTrouble, ModelUnavailable):
        trail, ends = clock.attempt(trail, pause=60, lasts=700)  # a server that hangs
        assert isinstance(ends, kind)


def test_a_wait_that_the_server_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    trail, _ = clock.attempt(Trail(), pause=0, wait=890.0)
    trail, ends = clock.attempt(trail, pause=900, wait=890.0)
    assert isinstance(ends, ModelTrouble)
    trail, ends = clock.attempt(trail, pause=900)
    assert isinstance(ends, ModelUnavailable)


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


async def test_a_server_that_asks_for_no_pause_gets_one() -> None:
    hurried = error(429, "slow down", None, retry_after_ms="5")
    with FaultServer([hurried]) as server, pytest.raises(ModelTrouble) as ends:
        await Desk(server).ask()
    assert (server.requests(), ends.value.next_retry_delay) == (1, timedelta(seconds=1))


async def test_a_server_that_drops_connections_is_asked_quickly_however_often_it_does() -> None:
    with FaultServer([RESET]) as server:
        asking = Desk(server)
        asking.trail.cut = MOST_CUT
        with pytest.raises(ModelTrouble):
            await asking.ask()
    assert (server.requests(), asking.trail.cut) == (QUICK_ATTEMPTS, MOST_CUT)


class Handing:
    """Attempts at one handoff, each on a worker that knows nothing."""

    def __init__(self, server: FaultServer, **request: Any) -> None:
        self.desk = Desk(server, {"stream": False, "unavailable_after": LIMIT})
        gateway, store = self.desk.gateway, open_store("memory://")
        self.world: Any = SimpleNamespace(gateway=gateway, router=self.desk.router, store=store)
        self.request = HandoffRequest(
            thread="run.1",
            branch="b",
            session=1,
            head=Head(branch="b", sequence=1, sha256=""),
            bundle=BundleRef(name="n", version="1", digest="d"),
            **request,
        )

    async def attempt(self) -> tuple[dict[str, Any], Usage]:
        """One attempt at the judgement."""
        asking = HandoffActivities(self.world)._judge(self.request, manifest_of(*self.desk.routes), [USER], HANDOFF)
        try:
            return await asking
        finally:
            await self.desk.gateway.close()
            self.desk.gateway._clients.clear()


async def test_a_handoff_gives_up_as_a_turn_does_and_says_what_it_cost() -> None:
    with FaultServer([error(500, "no")]) as server:
        handing = Handing(server)
        with pytest.raises(ModelTrouble):
            await handing.attempt()
        trail = await Trail.load(handing.world.store, handing.request)
        assert trail.usage.requests == server.requests() == QUICK_ATTEMPTS
        trail.since = time.time() - LIMIT
        await trail.save(handing.world.store, handing.request)
        with pytest.raises(ModelUnavailable) as ends:
            await handing.attempt()
    assert ends.value.details[-1] == {"usage": {"requests": 2 * QUICK_ATTEMPTS}}


async def test_answers_to_a_handoff_that_are_none_have_a_cap_over_all_attempts() -> None:
    with FaultServer([json_body({"choices": [], "usage": TOLD})]) as server:
        handing = Handing(server)
        for _ in range(MOST_UNUSABLE - 1):
            with pytest.raises(ModelTrouble):
                await handing.attempt()
        judgement, usage = await handing.attempt()
    assert "no usable judgement" in judgement["handoff"]
    assert usage == Usage(requests=MOST_UNUSABLE, input_tokens=1000 * MOST_UNUSABLE, output_tokens=50 * MOST_UNUSABLE)


async def test_a_handoff_is_asked_for_three_times_over_all_attempts() -> None:
    misfit = say("no JSON", usage=TOLD)
    with FaultServer([misfit, *[error(500)] * QUICK_ATTEMPTS, misfit]) as server:
        handing = Handing(server)
        with pytest.raises(ModelTrouble):
            await handing.attempt()
        judgement, usage = await handing.attempt()
    assert "no usable judgement" in judgement["handoff"]
    assert (server.requests(), usage.requests, usage.input_tokens) == (6, 6, 3000)


@pytest.mark.parametrize(("left", "requests"), [(5000, 3), (3099, 2), (2000, 1), (-1, 0)])
async def test_a_handoff_is_not_asked_for_again_where_the_limit_does_not_allow_it(left: int, requests: int) -> None:
    with FaultServer([say("no JSON", usage=TOLD)]) as server:
        handing = Handing(server, limits={"tokens": 9000}, used={"tokens": 9000 - left})
        judgement, usage = await handing.attempt()
    assert "no usable judgement" in judgement["handoff"]
    assert (server.requests(), usage.requests) == (requests, requests)


@pytest.mark.parametrize(("last", "named"), [("ModelTrouble", "ModelUnavailable"), ("ContextOverflow",) * 2])
def test_what_passes_has_a_lasting_name_where_its_attempts_are_spent(last: str, named: str) -> None:
    about = {"scheduled_event_id": 1, "started_event_id": 2, "identity": "", "activity_type": "", "activity_id": ""}
    spent = ActivityError("no", **about, retry_state=None)  # type: ignore[arg-type]
    spent.__cause__ = ApplicationError("no", type=last)
    assert (failure_of(spent).type, failure_of(spent).message) == (named, "no")


async def test_a_failure_that_ends_a_run_says_what_the_turn_cost_beside_its_own_details() -> None:
    trail = Trail(usage=Usage(requests=2, input_tokens=70))
    ends = failed(ContextOverflow("too long", "said"), trail, LIMIT)
    assert ends.details == ("said", {"usage": {"requests": 2, "input_tokens": 70}})
    assert (ends.type, ends.non_retryable) == ("ContextOverflow", True)
    assert failed(ModelTrouble("no"), trail, LIMIT).details == ()
    assert failed(RateLimited("no", 7.0), trail, LIMIT).details == (7.0,)
