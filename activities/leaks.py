"""Tool calls that a server failed to recognise: the model's markup for a call stands in its text.

Such text is neither an answer nor a call that may be run. What a model writes *about* markup is left alone: only markup
together with the name of a tool on offer counts.
"""

import json
import re
from collections.abc import Iterable

_MARKS = re.compile(
    r"<\|?/?tool[_▁ ]?calls?(_begin)?\|?>|<｜tool▁calls?▁begin｜>|\[TOOL_CALLS\]|<function[=_ ]|<\|python_tag\|>"
    r"|<invoke |<\|tool_calls_section_begin\|>|<\|channel\|>commentary to=functions|to=functions\."
)
_NEAR = 200


def is_leaked(text: str, names: Iterable[str]) -> bool:
    """Whether the text holds a call of one of the named tools in a model's own markup, or is nothing but its JSON."""
    offered = set(names)
    for match in _MARKS.finditer(text):
        near = text[match.start() : match.end() + _NEAR]
        if any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", near) for name in offered):
            return True
    return _is_call(text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip(), offered)


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
