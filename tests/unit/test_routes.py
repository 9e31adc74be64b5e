"""Which route answers: by kind of failure, and past servers that have just failed."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from activities.errors import (
    ContextOverflow,
    Failure,
    InvalidModelOutput,
    ModelRequestRejected,
    ModelTrouble,
    RateLimited,
)
from activities.manifest import FailureKind, Model
from activities.noting import NOTES
from activities.routing import SHRINK, SPENT, WAIT, Circuit, most_hopeful
from tests.faults.plays import error, json_body, say
from tests.faults.server import Asked, FaultServer, Play
from tests.unit.gateway_kit import Desk

FAULTS: dict[FailureKind, Play] = {
    "trouble": error(500),
    "rate_limit": error(429, retry_after="36000"),
    "rejected": error(404),
    "overflow": error(400, "too long", "context_length_exceeded"),
    "refused": say(None, refusal="No."),
    "content_filtered": say("ha", finish="content_filter"),
}


def serving(first: Play) -> FaultServer:
    """A server whose model `first` plays that, and whose other models answer."""

    def plan(asked: Asked) -> Play:
        return first if asked.model == "first" else say(f"from {asked.model}")

    return FaultServer(plan)


@pytest.mark.parametrize("kind", FAULTS)
async def test_the_next_route_answers_after_the_failures_that_the_bundle_names(kind: FailureKind) -> None:
    with serving(FAULTS[kind]) as server:
        asking = Desk(server, {"model": "first", "fall_back_on": [kind]}, {"model": "second"})
        reply = await asking.ask()
    assert (reply.text, reply.route) == ("from second", 1)
    assert asking.trail.requests == server.requests("first")
    assert asking.trail.usage.plus(reply.usage).requests == server.requests()


@pytest.mark.parametrize("kind", ["trouble", "refused"])
async def test_the_model_that_answers_is_noted_under_the_name_it_was_asked_by(kind: FailureKind) -> None:
    noted: dict[str, Any] = {}
    token = NOTES.set(noted)
    with serving(FAULTS[kind]) as server:
        await Desk(server, {"model": "first", "fall_back_on": [kind]}, {"model": "second"}).ask()
        assert noted == {"model": "second"}
        last = {"model": "second", "base_url_env": "NO_URL", "api_key_env": "NO_KEY"}
        asking = Desk(server, {"model": "first", "fall_back_on": [kind]}, last)
        if kind == "refused":
            assert (await asking.ask()).stopped == "refused"
            assert noted == {"model": "first"}, "its word stands, after the second could not be asked"
    NOTES.reset(token)


@pytest.mark.parametrize("kind", FAULTS)
async def test_no_other_route_answers_after_the_failures_that_it_does_not_name(kind: FailureKind) -> None:
    with serving(FAULTS[kind]) as server:
        others: list[Any] = [each for each in FAULTS if each != kind]
        asking = Desk(server, {"model": "first", "fall_back_on": others}, {"model": "second"})
        if kind in ("refused", "content_filtered"):
            assert (await asking.ask()).stopped == kind
        else:
            with pytest.raises(Failure):
                await asking.ask()
    assert server.requests("second") == 0


async def test_a_server_that_fails_is_left_alone_for_a_while_and_then_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault: dict[str, Play] = {"first": error(500)}

    def plan(asked: Asked) -> Play:
        return fault.get(asked.model, say(f"from {asked.model}"))

    with FaultServer(plan) as server:
        asking = Desk(server, {"model": "first"}, {"model": "second"})
        for _ in range(4):
            assert (await asking.ask()).text == "from second"
        before = server.requests("first")
        assert before == 2 * 3
        fault.clear()
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 31)
        monkeypatch.setattr("activities.routing.time", later)
        assert (await asking.ask()).text == "from first"
    assert server.requests("first") == before + 1


async def test_an_open_circuit_never_leaves_a_run_without_a_route() -> None:
    with FaultServer([error(429, retry_after="30"), say("good")]) as server:
        asking = Desk(server)
        with pytest.raises(ModelTrouble):
            await asking.ask()
        assert (await asking.ask()).text == "good"


def test_the_circuit_counts_only_what_waiting_may_mend() -> None:
    circuit, routes = Circuit(), [Model(model="a"), Model(model="b")]
    for _ in range(9):
        circuit.failed(routes[0], ModelRequestRejected("no"))
    assert circuit.order(routes) == [0, 1]
    circuit.failed(routes[0], RateLimited("later", 4000.0))
    assert circuit.order(routes) == [1, 0]
    circuit.answered(routes[0])
    assert circuit.order(routes) == [0, 1]


def test_the_failure_with_most_hope_is_the_one_that_counts() -> None:
    rejected, limited, overflow = ModelRequestRejected("no"), RateLimited("later", 4000.0), ContextOverflow("long")
    late, soon = ModelTrouble("b", retry_after=60.0), ModelTrouble("a", retry_after=5.0)
    for order in (SHRINK, WAIT):
        assert most_hopeful([rejected, limited, late, soon], order) is soon
    assert most_hopeful([rejected, limited], WAIT) is limited
    assert most_hopeful([rejected], WAIT) is rejected
    assert most_hopeful([soon, overflow], SHRINK) is overflow
    assert most_hopeful([overflow, soon], WAIT) is soon
    assert most_hopeful([overflow, limited], WAIT) is limited
    assert most_hopeful([rejected, overflow], WAIT) is overflow
    assert most_hopeful([soon, overflow, limited], SPENT) is overflow
    assert most_hopeful([soon, limited], SPENT) is limited  # trouble would end the run


async def test_what_is_no_answer_has_a_cap_over_all_attempts() -> None:
    with FaultServer([json_body({"choices": []})]) as server:
        asking = Desk(server, {"stream": False})
        for _ in range(7):
            with pytest.raises(ModelTrouble):
                await asking.ask()
        with pytest.raises(InvalidModelOutput, match=r"\(its keys: none\)"):
            await asking.ask()
    assert server.requests() == 8
