"""The way from one state schema of a bundle to another."""

from typing import Any

from activities.migrations import migration, way


def step(before: str, after: str, bundle: str = "crm") -> Any:
    @migration(bundle, before, after)
    def to(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "way": [*state.get("way", []), after]}

    return to


STEPS = [step("1", "2"), step("2", "3"), step("3", "4"), step("2", "4"), step("1", "9", bundle="other")]


def test_the_shortest_chain_is_taken() -> None:
    assert [one.after for one in way(STEPS, "crm", "1", "4") or []] == ["2", "4"]
    assert way(STEPS, "crm", "3", "3") == []


def test_without_a_chain_there_is_no_way() -> None:
    assert way(STEPS, "crm", "4", "1") is None
    assert way(STEPS, "crm", "1", "9") is None
