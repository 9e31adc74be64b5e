"""From an older schema of the checkpoint record to the newest: pure functions, one step each.

A step gets the record as it was written, without its digest, and gives it as the next schema has it. What the record
says of effects is never a step's to change. The digest stays the one of what was written: it is what the chain holds.
"""

from collections.abc import Callable, Mapping
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
