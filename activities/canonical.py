"""Canonical JSON, digests and previews."""

import hashlib
import json
from typing import Any

import rfc8785

from workflows.records import PREVIEW_BYTES


def canonical(value: Any) -> bytes:
    """The one JSON text of a value (RFC 8785). Raises ValueError for what JSON cannot hold exactly.

    Integers beyond 2**53 are written as strings with a mark, since RFC 8785 numbers are IEEE doubles.
    """
    try:
        return rfc8785.dumps(_exact(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"not canonical JSON: {error}") from None


def _exact(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"$int": str(value)}
    if isinstance(value, dict):
        return {str(key): _exact(item) for key, item in value.items()}
    return [_exact(item) for item in value]


def sha256(data: bytes) -> str:
    """The digest in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """The digest of a value's canonical JSON."""
    return sha256(canonical(value))


def preview(text: str, size: int = PREVIEW_BYTES) -> str:
    """How a text begins, in at most `size` bytes of UTF-8, on one line."""
    data = " ".join(text[: size * 2].split()).encode("utf-8", "replace")
    if len(data) <= size and len(text) <= size * 2:
        return data.decode("utf-8")
    return data[: size - 3].decode("utf-8", "ignore") + "…"


def fits(arguments: dict[str, Any], most: int) -> bool:
    """Whether the JSON of a call's arguments is at most `most` bytes long."""
    return len(json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")) <= most


def short_arguments(final: dict[str, Any], most: int) -> dict[str, Any] | str:
    """The arguments themselves where their JSON is at most `most` bytes long, else how it begins."""
    return final if fits(final, most) else preview(json.dumps(final, ensure_ascii=False))
