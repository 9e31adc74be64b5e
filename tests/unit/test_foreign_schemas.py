"""Schemas from outside fetch nothing and break nothing."""

from typing import Any

import pytest

from activities.schemas import check_schema, misfit

POINT = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}


def test_a_reference_inside_the_schema_is_followed() -> None:
    check_schema(POINT)
    assert misfit({"n": 1}, POINT) is None
    assert misfit({"n": "x"}, POINT) == "n: 'x' is not of type 'integer'"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "http://169.254.169.254/latest/meta-data"}, "leads outside"),
        ({"properties": {"a": [{"$ref": "file:///etc/passwd"}][0]}}, "leads outside"),
        ({"items": {"$dynamicRef": "other.json"}}, "leads outside"),
        ({"type": 7}, "no JSON Schema"),
        ({"$ref": "#/nowhere"}, "leads outside"),
        ({"$ref": "#"}, "circle"),
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
