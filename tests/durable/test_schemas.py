"""The gate: an incompatible change of a durable record fails here, with the field's name."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from tests.durable.schemas import DURABLE, REMEDY, breaks, schema_of

FOLDER = Path(__file__).parent / "schemas"


@pytest.mark.parametrize("model", DURABLE, ids=lambda model: str(model.__name__))
def test_records_of_the_last_release_can_still_be_read(model: type[BaseModel]) -> None:
    path = FOLDER / f"{model.__name__}.json"
    assert path.exists(), f"{model.__name__} is new: record it with `python -m tests.durable.record schemas`"
    assert not (found := breaks(json.loads(path.read_text()), schema_of(model))), f"{found}. {REMEDY}"


def test_every_recorded_schema_still_has_its_record() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} <= {model.__name__ for model in DURABLE}, REMEDY


class Inner(BaseModel):
    kind: Literal["a", "b"] = "a"


class Old(BaseModel):
    name: str
    size: int = 0
    inner: Inner = Field(default_factory=Inner)
    notes: list[Inner] = Field(default_factory=list)


def changed(**fields: Any) -> type[BaseModel]:
    """`Old` with other fields."""
    kept = {name: (field.annotation, field) for name, field in Old.model_fields.items()}
    merged: dict[str, Any] = {name: field for name, field in {**kept, **fields}.items() if field is not None}
    return create_model("Old", **merged)


def inner(*kinds: str) -> Any:
    """`Inner` with these kinds."""
    return create_model("Inner", kind=(Literal[kinds], kinds[0]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"added": (str, ...)}, "Old.added is now required"),
        ({"size": None}, "Old.size is gone"),
        ({"size": None, "length": (int, 0)}, "Old.size is gone"),
        ({"size": (str, "")}, "Old.size no longer takes integer"),
        ({"inner": (inner("a"), None)}, "Old.inner.kind no longer takes b"),
        ({"notes": (list[inner("a")], [])}, "Old.notes[].kind no longer takes b"),  # type: ignore[misc]
    ],
)
def test_the_gate_names_an_incompatible_change(fields: dict[str, Any], said: str) -> None:
    assert said in breaks(schema_of(Old), schema_of(changed(**fields)))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"added": (str, "")},
        {"size": (int | None, 0)},
        {"size": (float, 0)},
        {"inner": (inner("a", "b", "c"), None)},
    ],
)
def test_the_gate_lets_a_compatible_change_through(fields: dict[str, Any]) -> None:
    assert breaks(schema_of(Old), schema_of(changed(**fields))) == []
