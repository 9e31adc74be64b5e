"""JSON Schemas that came from outside: of an `output_schema`, or of a question that a model asks.

Nothing is fetched: a `$ref` to another place would be a request that no policy has seen. Nothing takes long: whoever
wrote the schema also chose its patterns and references, and a worker checks values between all that it does. Patterns
have a limit; what could still take for ever is checked in a process of its own, which is killed.
"""

import json
from typing import Any

import jsonschema_rs

from activities.tools.errors import ToolCrash, ToolError, ToolTimeout
from activities.tools.isolation import run_apart

_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
_QUICK = 10_000_000
"""Parts of a schema, with all that it refers to in each place, times characters of the value: a check passes each part
once for each place in the value. References that branch again and again, or lead in a circle, go far beyond."""
_MOST_PARTS = 20_000
"""Counting takes time too: what has more parts, as any circle has, is not quick."""
_SECONDS = 5.0


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


async def misfit_in_time(value: Any, schema: Any) -> str | None:
    """The same for a schema that nobody vouches for. What cannot be checked in time does not fit."""
    if _is_quick(schema, len(json.dumps(value))):
        return misfit(value, schema)
    try:
        return str(found) if (found := await run_apart("schema", misfit, (value, schema), {}, _SECONDS)) else None
    except ToolTimeout:
        return f"the value: it cannot be checked against this schema within {_SECONDS:g} s"
    except (ToolError, ToolCrash) as error:
        return f"the value: it cannot be checked: {error}"


def _is_quick(schema: Any, size: int) -> bool:
    left, parts, most = [schema], 0, min(_MOST_PARTS, _QUICK // (size + 1))
    while left and parts <= most:
        part = left.pop()
        parts += 1
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            if not _SLOW.isdisjoint(part):
                return False
            left += part.values()
            if "$ref" in part:
                left.append(_target(schema, part["$ref"]))
    return parts <= most


_SLOW = frozenset(
    {"pattern", "patternProperties", "$dynamicRef", "$recursiveRef", "$id", "unevaluatedProperties", "unevaluatedItems"}
)
"""Words that search, make a check look at one place more than once, or refer by another way than `_target` follows."""


def _target(schema: Any, ref: Any) -> Any:
    """What a reference inside the schema leads to; the whole schema, so that it is not quick, where that is unclear."""
    found = schema
    for step in str(ref).removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name, schema) if isinstance(found, dict) else schema
    return found


def _validator(schema: Any) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(schema, offline=True, mask="it", pattern_options=_PATTERNS)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"it is no JSON Schema, or leads outside of itself: {error.message[:200]}") from None
    except ValueError as error:
        raise ValueError(f"it cannot be read as a JSON Schema: {str(error)[:200]}") from None
