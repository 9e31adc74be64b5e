"""Migrations: pure functions, one step each. Of the checkpoint record from an older schema to the newest, and of what
one session hands over to the next when that runs under a bundle version with another `state_schema`.

A step gets the record as it was written, without its digest, and gives it as the next schema has it. What the record
says of effects is never a step's to change. The digest stays the one of what was written: it is what the chain holds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Step = Callable[[Body], Body]

SCHEMA = 1
"""The newest schema, in which records are written."""

STEPS: Mapping[int, Step] = {}
"""By the schema that a step starts from."""


class UnknownSchema(ValueError):
    """No step leads from a record's schema to the newest. The message says which schemas can be read."""


def migrate(body: Body, steps: Mapping[int, Step] = STEPS, newest: int = SCHEMA) -> Body:
    """The record in the newest schema. Raises UnknownSchema, and ValueError for a step that touches effects."""
    while (schema := body.get("schema")) != newest or type(schema) is not int:
        if type(schema) is not int or schema not in steps:
            readable = ", ".join(str(known) for known in sorted({*steps, newest}))
            raise UnknownSchema(
                f"it has schema {schema!r}, this release reads {readable}: use the release that wrote it or a newer one"
            )
        changed = {**steps[schema]({**body}), "schema": schema + 1}
        if changed.get("effects") != body.get("effects"):
            raise ValueError(f"the migration from schema {schema} changes what the record says of effects")
        body = changed
    return body


@dataclass(frozen=True)
class Migration:
    """A step of a bundle's state, from one `state_schema` to another."""

    bundle: str
    before: str
    after: str
    step: Step

    def __call__(self, state: Body) -> Body:
        """The step alone, as a test calls it."""
        return self.step(state)


def migration(bundle: str, before: str, after: str) -> Callable[[Step], Migration]:
    """Declares a migration, at the top level of a module of PERDURE_TOOLS.

    The function gets the judgement that a session hands over (see docs/sessions.md) as the old schema has it and
    returns it as the new one does. It is pure: no clock, no chance, nothing from outside. The facts of a handoff,
    effects before all, are the system's: it never sees them.
    """
    return lambda step: Migration(bundle, before, after, step)


def way(migrations: Iterable[Migration], bundle: str, before: str, after: str) -> list[Migration] | None:
    """The shortest chain of steps between two state schemas; None where there is none."""
    ours = [each for each in migrations if each.bundle == bundle]
    ways: dict[str, list[Migration]] = {before: []}
    fresh = [before]
    while after not in ways and fresh:
        fresh, last = [], fresh
        for each in ours:
            if each.before in last and each.after not in ways:
                ways[each.after] = [*ways[each.before], each]
                fresh.append(each.after)
    return ways.get(after)
