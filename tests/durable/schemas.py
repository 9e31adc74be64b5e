"""The schemas of all durable records, and what may change in them.

A record that was written yesterday must be read tomorrow, and during a deploy the other way round too. So a field may
be added with a default, a type may widen, a value may be added to a choice. Nothing may be removed, renamed, made
required or narrowed, by bounds neither, and a default stays what it is: fields that are at theirs are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from activities import listing
from activities.boundaries import Boundary
from activities.bundles import VersionClaim
from activities.checkpoints import Checkpoint
from activities.earlier import Earlier
from activities.effect_records import Claim, Outcome, Prepared, Review
from activities.handoff_record import HandoffRecord
from activities.manifest import Manifest
from activities.origin import Origin, Past
from activities.segments import Packed
from activities.trail import Trail
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
            Packed,
            Trail,
            Earlier,
            VersionClaim,
            HandoffRecord,
            listing.Kept,
            listing.Base,
            listing.Change,
        ]
    )
)

DEEPEST = 8
"""How deep records are compared: some contain themselves."""

LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
EXACT = ("pattern", "multipleOf", "format", "uniqueItems")
"""What narrows a type: bounds may move outwards or go, the others may only go."""

REMEDY = "Runs that are alive hold such records: add a new field with a default instead, or write a migration."


class _WithDefaults(GenerateJsonSchema):
    """Shows defaults that are made anew for each record too."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        made = schema.get("default_factory")
        return super().get_default_value(schema) if made is None else made()  # type: ignore[call-arg]


def name_of(model: type[BaseModel]) -> str:
    """What its schema is called: of two records of one name the later one has its module before it."""
    first = next(one for one in DURABLE if one.__name__ == model.__name__)
    return model.__name__ if first is model else f"{model.__module__.rpartition('.')[2]}.{model.__name__}"


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema by which stored records are read."""
    return model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithDefaults)


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What records of the old schema (or readers of it) cannot live with in the new one, each with the field's name."""
    return list(_Gate(old.get("$defs", {}), new.get("$defs", {})).compare(old, new, old.get("title", "record")))


@dataclass(frozen=True)
class _Gate:
    """Walks two schemas side by side."""

    old_defs: dict[str, Any]
    new_defs: dict[str, Any]

    def compare(self, old: Any, new: Any, at: str) -> Iterator[str]:
        """What is lost at this place and below it: each way of the old schema needs one of the new that takes it."""
        if at.count(".") > DEEPEST:
            return
        ways = _ways(new, self.new_defs)
        for each in _ways(old, self.old_defs):
            lost = [list(self._one(each, way, at)) for way in ways]
            if all(lost):
                yield from min(lost, key=lambda found: (_is_other(found, at), len(found)))

    def _one(self, old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[str]:
        yield from _kinds(old, new, at)
        yield from _bounds(old, new, at)
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, was in before.items():
            if name not in after:
                yield f"{at}.{name} is gone"
                continue
            yield from self.compare(was, after[name], f"{at}.{name}")
            if "default" in was and "default" in after[name] and not _same(was["default"], after[name]["default"]):
                yield f"{at}.{name} is {after[name]['default']!r} by default, and was {was['default']!r}"
        for name in set(new.get("required", [])) - set(old.get("required", [])):
            yield f"{at}.{name} is now required"
        if new.get("additionalProperties") is False and old.get("additionalProperties") is not False:
            yield f"{at} no longer passes over unknown fields"
        for part, mark in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(new.get(part), dict):
                held = old.get(part)
                yield from self.compare(held if isinstance(held, dict) else {}, new[part], at + mark)
        pairs = zip(old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False)
        for number, (was, now) in enumerate(pairs):
            yield from self.compare(was, now, f"{at}[{number}]")


def _ways(schema: Any, defs: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas of which one must fit, each without references at its top."""
    if not isinstance(schema, dict):
        return [{}]
    if "$ref" in schema:
        return _ways(defs.get(schema["$ref"].rpartition("/")[2], {}), defs)
    parts = schema.get("anyOf") or schema.get("oneOf")
    return [schema] if not parts else [way for part in parts for way in _ways(part, defs)]


def _is_other(lost: list[str], at: str) -> bool:
    """Whether what is lost is the type itself: another way is the one that was meant."""
    return lost[0].startswith(f"{at} no longer takes")


def _kinds(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[str]:
    before, after = _types(old), _types(new)
    if after and (lost := before - after if before else {"anything"}):
        yield f"{at} no longer takes {', '.join(sorted(lost))}"
    old_values, new_values = _choices(old), _choices(new)
    if new_values is not None and (lost := (old_values or {"any value"}) - new_values):
        yield f"{at} no longer takes {', '.join(sorted(lost))}"


def _bounds(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[str]:
    for name in (*LEAST, *MOST, *EXACT):
        if name not in new or old.get(name) == new[name] or _choices(old) is not None:
            continue
        wider = name in old and ((name in LEAST and new[name] < old[name]) or (name in MOST and new[name] > old[name]))
        if not wider:
            yield f"{at} is narrower: {name} {new[name]!r}"


def _same(old: Any, new: Any) -> bool:
    """Whether a default is what it was; fields that its record got since are new ones."""
    if isinstance(old, dict) and isinstance(new, dict) and old:
        return all(name in new and _same(value, new[name]) for name, value in old.items())
    return bool(old == new)


def _types(schema: dict[str, Any]) -> set[str]:
    """The JSON types that are accepted; none means anything."""
    kind = schema.get("type")
    found = {kind} if isinstance(kind, str) else set(kind or ())
    return found | {"integer"} if "number" in found else found


def _choices(schema: dict[str, Any]) -> set[str] | None:
    if "const" in schema:
        return {str(schema["const"])}
    return {str(value) for value in schema["enum"]} if "enum" in schema else None
