"""JSON as it is read from outside: strictly, so that what is accepted means the same everywhere."""

import json
import math
from typing import Any

from temporalio.common import RawValue

MARKED = "__temporal_external_storage_reference"
"""The SDK's mark of references: it takes it away from those that are."""


def decode_json(value: RawValue | None) -> Any:
    """The JSON in a payload, strictly: no NaN, no key twice. Raises ValueError that says what is wrong."""
    if value is None or not isinstance(value, RawValue):
        raise ValueError("no input was given")
    encoding = value.payload.metadata.get("encoding", b"").decode("ascii", "replace")
    if encoding == "binary/null":
        return None
    if encoding != "json/plain":
        raise ValueError(f"the input is encoded as {encoding or 'nothing'}, not as JSON")
    if MARKED in value.payload.metadata:
        raise ValueError("the input is marked as a reference to what is kept elsewhere, and is none")
    try:
        text = value.payload.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the input is not UTF-8 (byte {error.start})") from None
    return loads(text)


DEEPEST = 64
"""Levels of nesting beyond which JSON is refused: what writes it again later has a limit of its own."""


def loads(text: str) -> Any:
    """`json.loads`, strictly. Raises ValueError for NaN, an endless or huge number, a key given twice, half a surrogate
    pair and text nested too deeply: what is accepted can be written as JSON again, the same everywhere."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_twice)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    _check(value)
    return value


def _check(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError("the JSON is nested too deeply")
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [*each.keys(), *each.values()]
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str) and not each.isascii():
                _whole(each)
        level = below


def _whole(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the JSON holds half of a surrogate pair, which is no character") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} is given twice")
    return found
