"""Single crossings of attempts, each the shortest way to a fault that the protocol prevents."""

from dataclasses import replace

import pytest

from activities.effect_records import Outcome, Review
from tests.unit.effects.stepped import TIMEOUT, Running, World
from workflows.records import Resolution

NOT_HAPPENED = Resolution(outcome="not_happened", by="alice", code="K7Q2")


def until(attempt: Running, place: str) -> None:
    """Drives an attempt to a place of that name."""
    while attempt.live and (attempt.at is None or attempt.at.name != place):
        attempt.go()


def acted(world: World, attempt: Running) -> None:
    """Drives an attempt until its effect is in the world, and no further."""
    while attempt.live and not world.service.effects:
        attempt.go()


def crashed_after_acting(kind: str, effect: str = "once") -> World:
    world = World(kind, effect)
    first = world.start()
    acted(world, first)
    first.crash()
    return world


def ended(world: World, attempt: Running) -> object:
    world.finish(attempt)
    return attempt.ended


def test_what_broke_before_it_acted_is_not_on_record_as_done() -> None:
    world = World("nothing", "once")
    assert isinstance(ended(world, world.start("breaks before")), Review)
    assert world.state() == "IN_REVIEW"


def test_an_intent_without_an_outcome_is_not_taken_for_nothing_happened() -> None:
    world = crashed_after_acting("nothing")
    assert isinstance(ended(world, world.start()), Review)
    assert world.service.effects == 1


def test_a_look_up_comes_before_another_try() -> None:
    world = crashed_after_acting("lookup")
    found = ended(world, world.start())
    assert isinstance(found, Outcome)
    assert (found.how, world.service.effects) == ("found", 1)


def test_nobody_looks_or_acts_while_an_older_attempt_may_be_alive() -> None:
    world = World("lookup", "once")
    first, second = world.start(), world.start()
    until(first, "act")
    world.finish(second)
    world.finish(first)
    assert world.service.effects == 1


def test_an_undoing_that_is_stopped_before_it_begins_is_left_in_doubt_and_not_ended_for_good() -> None:
    """It has one name only, so that an end would leave the effect as it is for ever."""
    for undoes, state in ((None, "NOT_EXECUTED"), ("act:0", "PREPARED")):
        world = World("nothing", "once")
        made = world.sandwich("token", "well", False, "this")
        record = made.record.model_copy(update={"undoes": undoes})
        world.finish(Running(replace(made, record=record, stopped=lambda: True).perform()))
        assert (world.state(), world.service.effects) == (state, 0)


def test_a_claim_that_has_grown_old_is_not_acted_on() -> None:
    world = World("lookup", "once")
    first = world.start()
    while first.live and not any(key.endswith("prepared.json") for key in world.store.held):
        first.go()
    world.finish(world.start("breaks after"))
    world.finish(first)
    assert world.service.effects == 1


def test_a_person_s_word_lets_one_attempt_act() -> None:
    world = World("nothing", "once")
    first = world.start()
    until(first, "act")
    first.crash()
    assert isinstance(ended(world, world.start()), Review)
    second = world.start(resolution=NOT_HAPPENED)
    while second.live and not world.service.effects:
        world.clock.now = max(world.clock.now, second.at.due if second.at else 0.0)
        second.go()
    second.crash()
    assert isinstance(ended(world, world.start(resolution=NOT_HAPPENED)), Review)
    assert world.service.effects == 1


def test_a_refused_repetition_does_not_say_that_nothing_happened() -> None:
    world = crashed_after_acting("keys", "idempotent")
    assert isinstance(ended(world, world.start("refuses")), Review)
    assert world.state() != "NOT_EXECUTED"


def test_a_refused_attempt_does_not_say_that_nothing_happened_while_another_acts() -> None:
    world = World("keys", "idempotent")
    first, second = world.start("refuses"), world.start()
    until(first, "act")
    acted(world, second)
    world.finish(first)
    assert world.state() != "NOT_EXECUTED"
    world.finish(second)
    assert world.state() == "COMMITTED"


def test_a_person_is_asked_when_no_attempt_can_act_any_more() -> None:
    world = World("nothing", "once")
    first = world.start()
    until(first, "act")
    assert isinstance(ended(world, world.start(doubt=True)), Review)
    world.finish(first)
    assert world.service.effects == 0


def test_when_every_attempt_is_spent_a_look_up_decides() -> None:
    world = crashed_after_acting("lookup", "once")
    assert isinstance(ended(world, world.start(doubt=True)), Outcome)
    assert (world.state(), world.service.effects) == ("COMMITTED", 1)
    world = World("lookup", "once")
    first = world.start()
    until(first, "act")
    first.crash()
    assert isinstance(ended(world, world.start(doubt=True)), Outcome)
    assert (world.state(), world.service.effects) == ("NOT_EXECUTED", 0)


def test_another_request_under_a_taken_id_is_not_run() -> None:
    world = crashed_after_acting("keys", "idempotent")
    assert ended(world, world.start(request="another")) == "taken"


def test_what_was_refused_for_good_stays_so_when_the_attempt_dies_before_it_is_written() -> None:
    world = World("keys", "idempotent")
    first = world.start("refuses")
    while first.live and not any("attempts/2" in key for key in world.store.held):
        first.go()
    assert first.live, "the end of all claims comes before the outcome"
    first.crash()
    assert isinstance(ended(world, world.start()), Outcome)
    assert (world.state(), world.service.effects) == ("NOT_EXECUTED", 0)


def test_a_person_is_asked_when_no_older_attempt_with_more_time_can_act_any_more() -> None:
    world = World("keys", "idempotent")
    first = world.start()
    until(first, "act")
    assert isinstance(ended(world, world.start("refuses", timeout=3.0)), Review)
    world.finish(first)
    assert world.service.effects == 0


@pytest.mark.parametrize("doubt", [False, True])
def test_a_lease_is_waited_out_by_attempts_that_last_less_each(doubt: bool) -> None:
    """And by nothing else: the time between them does not count, since nobody has seen it."""
    world = World("nothing", "once")
    first = world.start()
    until(first, "act")
    one = world.start(doubt=doubt)
    begun = world.clock.now
    for _ in range(3):
        end = world.clock.now + TIMEOUT / 3
        while one.live and world.clock.now < end:
            world.clock.now = max(world.clock.now, one.at.due if one.at else 0.0)
            one.go()
        assert one.live, "the lease has not ended"
        one.crash()
        one = world.start(doubt=doubt, after=one)
    assert isinstance(ended(world, one), Review)
    assert TIMEOUT < world.clock.now - begun < TIMEOUT + 10
    world.finish(first)
    assert world.service.effects == 0


@pytest.mark.parametrize("crash", [0, 1, 2, 3, 4, 5, 6])
def test_what_a_reset_left_is_not_made_any_more_once_a_person_says_that_it_was_not(crash: int) -> None:
    """Wherever the attempt that writes the word down dies."""
    world = World("nothing", "once")
    first = world.start()
    until(first, "act")
    assert isinstance(ended(world, world.start(doubt=True)), Review)
    closing = world.leave(NOT_HAPPENED)
    for _ in range(3 * crash):
        if closing.live:
            world.clock.now = max(world.clock.now, closing.at.due if closing.at else 0.0)
            closing.go()
    closing.crash()
    left = ended(world, world.leave(NOT_HAPPENED))
    assert isinstance(left, Outcome)
    assert (left.status, left.how) == ("NOT_EXECUTED", "person")
    for late in (first, world.start(), world.start(resolution=NOT_HAPPENED)):
        world.finish(late)
    assert world.service.effects == 0


@pytest.mark.parametrize("steps", range(60))
def test_what_a_reset_left_is_closed_only_where_no_attempt_acts_behind_it(steps: int) -> None:
    """The old path's attempt may be anywhere when the word is written down."""
    world = World("nothing", "once")
    first = world.start()
    until(first, "act")
    assert isinstance(ended(world, world.start(doubt=True)), Review)
    late = world.start(resolution=NOT_HAPPENED)
    for _ in range(steps):
        if late.live:
            world.clock.now += 40.0 if late.at is not None and late.at.name == "sleep" else 0.0  # a lease, at once
            late.go()
    world.finish(world.leave(NOT_HAPPENED))
    world.finish(late)
    assert world.state() != "NOT_EXECUTED" or world.service.effects == 0
