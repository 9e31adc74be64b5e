"""No interleaving, crash, late attempt or store fault makes two effects, or a record of what did not happen."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from activities.effect_records import ENDS, Outcome, Review
from tests.unit.effects.stepped import TIMEOUT, Running, World, store_fault
from workflows.records import Resolution

MOODS = st.sampled_from(["well", "well", "refuses", "breaks before", "breaks after"])
TIMEOUTS = st.sampled_from([TIMEOUT, TIMEOUT, 3.0])
"""A deploy may change how much time a tool has."""
CLASSES = st.sampled_from(
    [
        ("keys", "idempotent", "review", 1e9),
        ("nothing", "idempotent", "review", 1.0),  # its keys have expired
        ("lookup", "once", "review", 1e9),
        ("lookup", "idempotent", "review", 1.0),
        ("nothing", "once", "review", 1e9),
        ("nothing", "once", "skip", 1e9),
    ]
)


class Effects(RuleBasedStateMachine):
    """Attempts that overlap as they like; the server starts another at any time, and a person tells the truth."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.attempts: list[Running] = []
        self.word: Resolution | None = None
        self.codes = 0

    @initialize(kind=CLASSES)
    def begin(self, kind: tuple[str, str, str, float]) -> None:
        self.world = World(*kind)

    def live(self) -> list[Running]:
        return [attempt for attempt in self.attempts if attempt.live]

    def ready(self) -> list[Running]:
        assert self.world is not None
        return [one for one in self.live() if one.at is None or one.at.due <= self.world.clock.now]

    @precondition(lambda self: self.world and len(self.live()) < 3)
    @rule(mood=MOODS, last=st.booleans(), timeout=TIMEOUTS, told=st.booleans())
    def attempt(self, mood: str, last: bool, timeout: float, told: bool) -> None:
        assert self.world is not None
        after = self.attempts[-1] if told and self.attempts else None
        self.attempts.append(self.world.start(mood, self.word, last=last, timeout=timeout, after=after))

    @precondition(lambda self: self.world and len(self.live()) < 3)
    @rule(told=st.booleans())
    def attempts_are_spent(self, told: bool) -> None:
        assert self.world is not None
        after = self.attempts[-1] if told and self.attempts else None
        self.attempts.append(self.world.start(doubt=True, after=after))

    @precondition(lambda self: self.world and len(self.live()) < 3)
    @rule()
    def another_request_under_this_id(self) -> None:
        assert self.world is not None
        self.attempts.append(self.world.start(request="another"))

    @precondition(lambda self: self.world and self.ready())
    @rule(data=st.data(), steps=st.integers(1, 12))
    def go(self, data: st.DataObject, steps: int) -> None:
        one = data.draw(st.sampled_from(self.ready()))
        for _ in range(steps):
            if one in self.ready():
                one.go()

    @precondition(lambda self: self.world and self.live())
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.live())).crash()

    @precondition(lambda self: self.world and any(one.at and one.at.name == "store" for one in self.live()))
    @rule(data=st.data())
    def the_store_fails(self, data: st.DataObject) -> None:
        at_store = [one for one in self.live() if one.at and one.at.name == "store"]
        data.draw(st.sampled_from(at_store)).go(store_fault())

    @precondition(lambda self: self.world and self.live())
    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 31.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        assert self.world is not None
        self.world.clock.now += seconds

    @precondition(lambda self: any(isinstance(one.ended, Review) for one in self.attempts))
    @rule(give_up=st.booleans())
    def a_person_looks_and_says(self, give_up: bool) -> None:
        """The word is given to later attempts; the request is closed. What a person sees may change: see `told`."""
        assert self.world is not None
        for one in self.attempts:
            if isinstance(one.ended, Review):
                one.ended, one.failed = None, KeyboardInterrupt()
        self.codes += 1
        truth = "happened" if self.world.service.effects else "give_up" if give_up else "not_happened"
        self.word = Resolution(outcome=truth, by="alice", code=f"C{self.codes}")  # type: ignore[arg-type]

    @precondition(lambda self: self.world and self.word is not None and len(self.live()) < 3)
    @rule()
    def a_reset_left_it_and_the_word_ends_it(self) -> None:
        assert self.world is not None
        assert self.word is not None
        self.attempts.append(self.world.leave(self.word))

    @invariant()
    def at_most_one_effect(self) -> None:
        assert self.world is None or self.world.service.effects <= 1

    @invariant()
    def what_is_on_record_is_true(self) -> None:
        if self.world is None:
            return
        state, effects = self.world.state(), self.world.service.effects
        assert state != "COMMITTED" or effects == 1
        assert state != "NOT_EXECUTED" or effects == 0

    def teardown(self) -> None:
        """It always ends in a named state, once somebody is left to finish it."""
        if self.world is None:
            return
        for one in self.live():
            self.world.finish(one)
        for _ in range(6):
            one = self.world.start("well", self.word)
            self.world.finish(one)
            if one.failed is None:
                break
        assert isinstance(one.ended, Outcome | Review) or one.ended == "taken", one.failed
        self.at_most_one_effect()
        self.what_is_on_record_is_true()
        assert self.world.state() in (*ENDS, "IN_REVIEW") or one.ended == "taken"


TestEffects = Effects.TestCase
TestEffects.settings = settings(
    max_examples=int(os.environ.get("PERDURE_EXAMPLES", "150")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
