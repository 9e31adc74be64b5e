"""Tool calls that a server failed to recognise: the model's markup for a call stands in its text.

Such text is neither an answer nor a call that may be run. What a model writes *about* markup is left alone: only markup
together with the name of a tool on offer counts.
"""

import json
import re
from collections.abc import Iterable
from itertools import islice

_MARKS = re.compile(
    r"<\|?/?tool[_▁ ]?calls?(_begin)?\|?>|<｜tool▁calls?▁begin｜>|\[TOOL_CALLS\]|<function[=_ ]|<\|python_tag\|>"
    r"|<invoke |<\|tool_calls_section_begin\|>|<\|channel\|>commentary to=functions|to=functions\."
)
_NEAR = 200
MOST_MARKS = 1_000
"""So many marks are looked at. A model that writes more of them than that has lost itself, and names no tool."""


def is_leaked(text: str, names: Iterable[str]) -> bool:
    """Whether the text holds a call of one of the named tools in a model's own markup, or is nothing but its JSON."""
    offered = set(names)
    if offered and (marks := _near_marks(text)):
        named = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, offered))})(?![\w-])")
        if any(named.search(text[start:end]) for start, end in marks):
            return True
    return _is_call(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip(), offered)


def _near_marks(text: str) -> list[tuple[int, int]]:
    """The places at and after a mark, each character in one of them only: a model may repeat a mark without end."""
    found: list[tuple[int, int]] = []
    for mark in islice(_MARKS.finditer(text), MOST_MARKS):
        start, end = mark.start(), mark.end() + _NEAR
        if found and start <= found[-1][1]:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _is_call(text: str, offered: set[str]) -> bool:
    if not text.startswith("{") or len(text) > 100_000:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or set(value) - {"name", "arguments", "parameters", "id", "type"}:
        return False
    return value.get("name") in offered and ("arguments" in value or "parameters" in value)
