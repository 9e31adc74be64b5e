"""A tool's result as text for a model. Binary data and broken text are made safe here, at the tool's edge."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from activities.tools.errors import ToolError

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def to_text(value: object) -> tuple[str, bytes | None]:
    """The text of a result, and its bytes if it is binary.

    Text stays text, and so do bytes that are UTF-8 without NULs; other bytes are described by size and digest; all else
    becomes compact JSON. Raises `ToolError` that names the type when there is no JSON for it.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(value))
    if type(value) is str:
        return safe(value), None
    try:
        plain = _finite(to_jsonable_python(value, bytes_mode="base64", by_alias=True))
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ToolError(
            f"the tool returned a {type(value).__name__}, which is neither text, JSON, a pydantic model nor bytes"
        ) from error
    return safe(text), None


def safe(text: str) -> str:
    """Text that every store and wire takes: halves of surrogate pairs and NULs replaced, whole pairs joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _REPLACEMENT)


def _from_bytes(data: bytes) -> tuple[str, bytes | None]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"[binary, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}]", data
    return text, None


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; as text they say what they were, and an effect's result is not lost over one."""
    if isinstance(value, float) and value - value != 0:
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value
