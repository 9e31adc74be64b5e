"""JSON Schemas that came from outside: of an `output_schema`, or of a question that a model asks.

Nothing is fetched: a `$ref` to another place would be a request that no policy has seen. Nothing takes long: whoever
wrote the schema also chose its patterns, and a worker checks them between all that it does.
"""

from typing import Any

import jsonschema_rs

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)


def check_schema(schema: Any) -> None:
    """Raises ValueError for what is no JSON Schema, or refers to something outside itself."""
    _validator(schema)


def misfit(value: Any, schema: Any) -> str | None:
    """What is wrong with a value; None when it satisfies the schema. Raises ValueError as `check_schema` does."""
    validator = _validator(schema)
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(part) for part in error.instance_path) or "the value"
        return f"{where}: {error.message[:300]}"
    except ValueError as error:  # it is nested too deeply, or its text is no Unicode
        return f"the value: it cannot be checked: {error}"
    return None


def _validator(schema: Any) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, offline=True, mask="it", pattern_options=_PATTERNS)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"it is no JSON Schema, or leads outside of itself: {error.message[:200]}") from None
    except ValueError as error:
        raise ValueError(f"it cannot be read as a JSON Schema: {str(error)[:200]}") from None
