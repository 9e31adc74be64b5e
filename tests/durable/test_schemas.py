"""The gate: an incompatible change of a durable record fails here, with the field's name."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from tests.durable.schemas import DURABLE, REMEDY, breaks, name_of, schema_of

FOLDER = Path(__file__).parent / "schemas"


@pytest.mark.parametrize("model", DURABLE, ids=name_of)
def test_records_of_the_last_release_can_still_be_read(model: type[BaseModel]) -> None:
    path = FOLDER / f"{name_of(model)}.json"
    assert path.exists(), f"{name_of(model)} is new: record it with `python -m tests.durable.record schemas`"
    assert not (found := breaks(json.loads(path.read_text()), schema_of(model))), f"{found}. {REMEDY}"


def test_every_recorded_schema_still_has_its_record() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} <= {name_of(model) for model in DURABLE}, REMEDY


class Inner(BaseModel):
    kind: Literal["a", "b"] = "a"


class Old(BaseModel):
    name: str
    size: int = 0
    inner: Inner = Field(default_factory=Inner)
    notes: list[Inner] = Field(default_factory=list)
    other: Inner | None = None
    share: float = Field(0.5, ge=0, le=1)
    options: dict[str, Any] = Field(default_factory=dict)


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
        ({"size": (int, 77)}, "Old.size is 77 by default, and was 0"),
        ({"notes": (list[Inner], [Inner()])}, "Old.notes is [{'kind': 'a'}] by default, and was []"),
        ({"size": (int, Field(0, ge=5))}, "Old.size is narrower: minimum 5"),
        ({"name": (str, Field(max_length=3))}, "Old.name is narrower: maxLength 3"),
        ({"name": (str, Field(pattern="^a"))}, "Old.name is narrower: pattern '^a'"),
        ({"share": (float, Field(0.5, ge=0.1, le=1))}, "Old.share is narrower: minimum 0.1"),
        ({"options": (dict[str, int], Field(default_factory=dict))}, "Old.options{} no longer takes anything"),
        ({"other": (Inner, Inner())}, "Old.other no longer takes null"),
        ({"other": (inner("a") | None, None)}, "Old.other.kind no longer takes b"),
        ({"other": (create_model("Inner") | None, None)}, "Old.other.kind is gone"),
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
        {"inner": (inner("a", "b", "c"), Field(default_factory=inner("a", "b", "c")))},
        {"inner": (create_model("Inner", __base__=Inner, more=(int, 1)), Field(default_factory=Inner))},
        {"share": (float, Field(0.5, ge=-1))},
        {"other": (Inner | str | None, None)},
    ],
)
def test_the_gate_lets_a_compatible_change_through(fields: dict[str, Any]) -> None:
    assert breaks(schema_of(Old), schema_of(changed(**fields))) == []


def test_the_gate_names_a_record_that_refuses_what_a_later_release_adds() -> None:
    class Strict(Old):
        model_config = ConfigDict(extra="forbid", title="Old")

    assert "Old no longer passes over unknown fields" in breaks(schema_of(Old), schema_of(Strict))
