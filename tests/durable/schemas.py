"""The schemas of all durable records, and what may change in them.

A record that was written yesterday must be read tomorrow, and during a deploy the other way round too. So a field may
be added with a default, a type may widen, a value may be added to a choice. Nothing may be removed, renamed, made
required or narrowed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from activities.boundaries import Boundary
from activities.checkpoints import Checkpoint
from activities.effect_records import Claim, Outcome, Prepared, Review
from activities.manifest import Manifest
from activities.origin import Origin, Past
from workflows import (
    child_records,
    fork_records,
    lineage,
    project_records,
    records,
    session_records,
    side_records,
    undoing_records,
    upgrade_records,
)
from workflows.notices import Noticed, NoticeRequest
from workflows.project_state import ProjectState
from workflows.state import RunState

DURABLE: list[type[BaseModel]] = list(
    dict.fromkeys(
        [
            *(
                value
                for module in (
                    *(records, side_records, undoing_records, session_records),
                    *(upgrade_records, fork_records, child_records, lineage, project_records),
                )
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, records.Record) and value is not records.Record
            ),
            NoticeRequest,
            Noticed,
            RunState,
            ProjectState,
            Checkpoint,
            Prepared,
            Claim,
            Outcome,
            Review,
            Manifest,
            Origin,
            Past,
            Boundary,
        ]
    )
)

DEEPEST = 8
"""How deep records are compared: some contain themselves."""

REMEDY = "Runs that are alive hold such records: add a new field with a default instead, or write a migration."


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema by which stored records are read."""
    return model.model_json_schema(by_alias=True, mode="validation")


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What records of the old schema (or readers of it) cannot live with in the new one, each with the field's name."""
    return list(_Gate(old.get("$defs", {}), new.get("$defs", {})).compare(old, new, old.get("title", "record")))


@dataclass(frozen=True)
class _Gate:
    """Walks two schemas side by side."""

    old_defs: dict[str, Any]
    new_defs: dict[str, Any]

    def compare(self, old: Any, new: Any, at: str) -> Iterator[str]:
        """What is lost at this place and below it."""
        old, new = _resolve(old, self.old_defs), _resolve(new, self.new_defs)
        if not isinstance(old, dict) or not isinstance(new, dict) or at.count(".") > DEEPEST:
            return
        yield from self._kinds(old, new, at)
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in before:
            if name not in after:
                yield f"{at}.{name} is gone"
            else:
                yield from self.compare(before[name], after[name], f"{at}.{name}")
        for name in set(new.get("required", [])) - set(old.get("required", [])):
            yield f"{at}.{name} is now required"
        for part, mark in (("items", "[]"), ("additionalProperties", "{}")):
            if part in old and part in new:
                yield from self.compare(old[part], new[part], at + mark)

    def _kinds(self, old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[str]:
        before, after = _types(old, self.old_defs), _types(new, self.new_defs)
        if after and (lost := before - after if before else {"anything"}):
            yield f"{at} no longer takes {', '.join(sorted(lost))}"
        old_values, new_values = _choices(old), _choices(new)
        if new_values is not None and (lost := (old_values or {"any value"}) - new_values):
            yield f"{at} no longer takes {', '.join(sorted(lost))}"


def _resolve(schema: Any, defs: dict[str, Any]) -> Any:
    if isinstance(schema, dict) and "$ref" in schema:
        return defs.get(schema["$ref"].rpartition("/")[2], {})
    return schema


def _types(schema: dict[str, Any], defs: dict[str, Any]) -> set[str]:
    """The JSON types that are accepted; none means anything."""
    schema = _resolve(schema, defs)
    if "anyOf" in schema:
        each = [_types(part, defs) for part in schema["anyOf"]]
        return set() if any(not types for types in each) else set().union(*each)
    kind = schema.get("type")
    found = {kind} if isinstance(kind, str) else set(kind or ())
    return found | {"integer"} if "number" in found else found


def _choices(schema: dict[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {str(schema["const"])}
    return {str(value) for value in schema["enum"]} if "enum" in schema else None
