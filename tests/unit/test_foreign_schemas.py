"""Schemas from outside fetch nothing and break nothing."""

from typing import Any

import pytest

from activities import schemas
from activities.schemas import check_schema, misfit, misfit_in_time
from workflows.catalog import JUDGE

POINT = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}


def test_a_reference_inside_the_schema_is_followed() -> None:
    check_schema(POINT)
    assert misfit({"n": 1}, POINT) is None
    assert misfit({"n": "x"}, POINT) == 'n: it is not of type "integer"'


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "http://169.254.169.254/latest/meta-data"}, "leads outside"),
        ({"properties": {"a": [{"$ref": "file:///etc/passwd"}][0]}}, "leads outside"),
        ({"items": {"$dynamicRef": "other.json"}}, "leads outside"),
        ({"type": 7}, "no JSON Schema"),
        ({"$ref": "#/nowhere"}, "leads outside"),
        ({"$schema": "http://example.com/own"}, "leads outside"),
        ({"pattern": "("}, "no JSON Schema"),
        ({"pattern": "\ud800"}, "cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_without_a_request(
    schema: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr("socket.socket.connect", forbidden)
    with pytest.raises(ValueError, match=said):
        misfit({"a": 1}, schema)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*(?!c)b$", "^(a*)*\\1$"])
def test_a_pattern_that_backtracks_for_ever_ends_at_once(pattern: str) -> None:
    said = misfit("a" * 5_000 + "!", {"type": "string", "pattern": pattern})
    assert said is not None
    assert "does not match" in said or "backtracking" in said


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        ("12", {"pattern": r"^\p{L}+$"}, "does not match"),
        ("äb", {"pattern": r"^\p{L}+$"}, None),
        (10**400, {"multipleOf": 2}, None),
        (10**400 + 1, {"multipleOf": 2}, "not a multiple"),
        ("\ud800", {"type": "string"}, "cannot be checked"),
        ({"a": {"a": {}}}, {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "required"),
        ("x", {"$ref": "#"}, None),
        ({"$ref": 1}, {"properties": {"$ref": {"type": "integer"}}}, None),
    ],
)
def test_a_value_is_checked_as_the_schema_means_it(value: Any, schema: Any, said: str | None) -> None:
    found = misfit(value, schema)
    assert found is None if said is None else found is not None and said in found


def folded(depth: int, word: str) -> dict[str, Any]:
    """A small schema whose references branch: what has to be looked at doubles with each step."""
    steps: dict[str, Any] = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{depth}": {"type": "integer"}}}


NESTED = {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"items": {"$ref": "#/$defs/n"}, "type": "array"}] * 2}}}


@pytest.mark.parametrize("schema", [folded(30, "anyOf"), NESTED])
async def test_a_check_without_end_is_killed_and_does_not_fit(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    value: Any = "x"
    for _ in range(60):
        value = [value]
    monkeypatch.setattr(schemas, "_SECONDS", 1.0)
    check_schema(schema)
    said = await misfit_in_time(value if schema is NESTED else "x", schema)
    assert said is not None
    assert said.startswith("the value: ")


async def test_a_schema_with_references_of_its_own_is_checked_here_and_elsewhere_alike() -> None:
    point = {"type": "object", "properties": {"n": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {"type": "integer"}}}
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "n": {"type": "integer"}}}
    for schema in (point, tree, {**point, "pattern": "x"}):
        assert await misfit_in_time({"n": 1}, schema) is None
        assert await misfit_in_time({"n": "x"}, schema) == 'n: it is not of type "integer"'


def test_the_activity_that_checks_an_answer_outlives_the_check() -> None:
    """Else nobody would be told what the check found: that it cannot be done in time."""
    assert JUDGE.within is not None
    assert schemas._SECONDS + 1 < JUDGE.wait.total_seconds() < JUDGE.within.total_seconds()


def test_a_schema_in_a_circle_is_not_counted_for_long() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}
    visited = 0

    class Counted(dict[str, Any]):
        def values(self) -> Any:
            nonlocal visited
            visited += 1
            return super().values()

    assert not schemas._is_quick(Counted(tree), 2)
    assert visited < 20_000
