"""A value that fits a JSON Schema, for the commands that people copy. A start to type over, not an answer."""

from dataclasses import dataclass
from typing import Any, TypeGuard

MOST = 200
"""Parts of an example: what a schema refers to in each place, and each item of a list, is one more."""
DEEPEST = 8


def example_of(schema: Any) -> Any:
    """A small value that fits a plain schema; the text `your answer` where the schema is too clever for it."""
    return _Example(schema, MOST).of(schema)


@dataclass
class _Example:
    """`whole`: what a reference is looked up in; `left`: how many parts there may still be."""

    whole: Any
    left: int

    def of(self, schema: Any, depth: int = 0) -> Any:
        self.left -= 1
        if not isinstance(schema, dict) or depth > DEEPEST or self.left < 0:
            return "your answer"
        if isinstance(schema.get("$ref"), str):
            return self.of(_target(self.whole, schema["$ref"]), depth + 1)
        if isinstance(schema.get("examples"), list) and schema["examples"]:
            return schema["examples"][0]
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return schema["enum"][0]
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.of(schema[key][0], depth + 1)
        kind = schema.get("type")
        return self._of_type(kind[0] if isinstance(kind, list) and kind else kind, schema, depth)

    def _of_type(self, kind: Any, schema: dict[str, Any], depth: int) -> Any:
        if kind == "object" or (kind is None and "properties" in schema):
            properties = schema.get("properties")
            properties = properties if isinstance(properties, dict) else {}
            required = schema.get("required")
            names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
            return {name: self.of(properties.get(name, {}), depth + 1) for name in names}
        if kind == "array":
            least = schema.get("minItems", 0)
            count = min(least, max(self.left, 0)) if isinstance(least, int) else 0
            return [self.of(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            return _number(schema)
        return {"boolean": True, "null": None}.get(str(kind), _text(schema))


def _target(whole: Any, ref: str) -> Any:
    """What a reference inside the schema leads to; None where it leads elsewhere."""
    found = whole
    for step in ref.removeprefix("#").split("/")[1:]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if ref.startswith("#") else None


def _number(schema: dict[str, Any]) -> Any:
    least, above, most, step = (schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum", "multipleOf"))
    if isinstance(step, int) and step > 0:
        start = least if isinstance(least, int) else above + 1 if isinstance(above, int) else 1
        return -(-start // step) * step
    below = schema.get("exclusiveMaximum")
    if _is_number(least):
        return least
    if _is_number(above):
        ends = [(above + end) / 2 for end in (most, below) if _is_number(end) and end <= above + 1]
        return ends[0] if ends else above + 1
    if _is_number(most):
        return min(most, 1)
    return below - 1 if _is_number(below) and below <= 1 else 1


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(schema: dict[str, Any]) -> str:
    text, least, most = "your answer", schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) and least > len(text):
        text = text.ljust(min(least, 200), ".")
    return text[:most] if isinstance(most, int) and most >= 0 else text
