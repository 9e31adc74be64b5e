"""How much is shown at once: so much that the plain CLI and the Web UI can read it, whatever is asked."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

SENT_BYTES = 300_000
"""The most that one answer holds, as it is sent. One of more than 512 KiB would be kept in the object store, with a
reference in its place, which only `perdure` can follow; some is left for what the SDK adds."""

LENGTHS = (None, 500, 40)
"""The most characters of a text: all, or as many as let fifty requests fit; with the last, commands remain."""


def fitting(make: Callable[[int | None], T]) -> T:
    """What is made with the first of the lengths with which it fits; with the last one where it fits with none."""
    for longest in LENGTHS[:-1]:
        made = make(longest)
        if sent_bytes(made) <= SENT_BYTES:
            return made
    return make(LENGTHS[-1])


def sent_bytes(value: Any) -> int:
    """The length of a value as the SDK sends Current Details: JSON in ASCII, in which most scripts take six bytes a
    letter. The answers of the other queries are UTF-8, and no longer."""
    return len(json.dumps(value))


def cut(text: str, longest: int | None) -> str:
    """How a text begins, in at most so many characters; all of it for None."""
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def cut_value(value: Any, longest: int | None) -> Any:
    """The value itself where its JSON is at most so long, else how that, or the text that it is, begins."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if longest is None or len(text) <= longest else cut(text, longest)
