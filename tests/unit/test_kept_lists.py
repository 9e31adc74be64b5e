"""What a run keeps of its lists, and what it shows of them."""

import pytest

from workflows.records import EffectRecord
from workflows.requests import KEPT
from workflows.state import RunState


def effects(name: str, count: int) -> dict[str, EffectRecord]:
    ids = [f"{name}:{number}" for number in range(count)]
    return {each: EffectRecord(operation_id=each, tool=name, effect="once", status="COMMITTED") for each in ids}


@pytest.mark.parametrize(
    ("left", "own", "seen"),
    [(0, 50, (0, 50)), (200, 50, (25, 25)), (3, 50, (3, 47)), (200, 10, (40, 10)), (60, 0, (50, 0))],
)
def test_effects_of_a_left_path_and_the_run_s_own_do_not_push_each_other_out(
    left: int, own: int, seen: tuple[int, int]
) -> None:
    state = RunState(branch="b", abandoned=effects("left", left), effects=effects("own", own))
    found = [each.operation_id for each in state.all_effects()]
    assert len(found) <= KEPT
    assert tuple(sum(each.startswith(name) for each in found) for name in ("left", "own")) == seen
    assert found[-1] == (f"own:{own - 1}" if own else f"left:{left - 1}")
