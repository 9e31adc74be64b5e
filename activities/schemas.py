"""JSON Schemas that came from outside: of an `output_schema`, or of a question that a model asks.

Nothing is fetched: a `$ref` to another place would be a request that no policy has seen.
"""

from typing import Any

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable

_NOTHING_OUTSIDE: "Registry[Any]" = Registry()


def check_schema(schema: Any) -> None:
    """Raises ValueError for what is no JSON Schema, or refers to something outside itself."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"it is no JSON Schema: {error.message[:200]}") from None
    for ref in references(schema):
        if not ref.startswith("#"):
            raise ValueError(f"its $ref {ref[:200]!r} leads outside of it")


def misfit(value: Any, schema: Any) -> str | None:
    """What is wrong with a value; None when it satisfies the schema. Raises ValueError as `check_schema` does."""
    check_schema(schema)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        error = next(iter(kind(schema, registry=_NOTHING_OUTSIDE).iter_errors(value)), None)
    except (Unresolvable, RecursionError):
        raise ValueError("its $ref leads outside of it or in a circle") from None
    if error is None:
        return None
    where = "/".join(str(part) for part in error.absolute_path) or "the value"
    return f"{where}: {error.message[:300]}"


def references(schema: Any) -> list[str]:
    """Every `$ref` and `$dynamicRef` in a schema."""
    if isinstance(schema, list):
        return [ref for part in schema for ref in references(part)]
    if not isinstance(schema, dict):
        return []
    own = [str(schema[name]) for name in ("$ref", "$dynamicRef") if name in schema]
    return own + [ref for part in schema.values() for ref in references(part)]
