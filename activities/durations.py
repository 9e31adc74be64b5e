"""Durations as people write them: `3s`, `5m`, `24h`, `7d`, or ISO 8601 (`PT15M`)."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

_SHORT = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST = 100 * 365.25 * 86_400.0
"""Seconds: what is longer overflows a date sooner or later."""

_ISO = TypeAdapter(timedelta)


def seconds(value: object) -> float:
    """The duration in seconds. Raises ValueError for what is no duration, or is negative or longer than 100 years."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str) and (match := _SHORT.fullmatch(value.strip())):
        found = float(match[1]) * _UNITS[match[2]]
    elif isinstance(value, str) and value.strip().upper().startswith("P"):
        found = _ISO.validate_python(value.strip().upper()).total_seconds()
    else:
        raise ValueError("not a duration: write 3s, 5m, 24h, 7d or ISO 8601")
    if not 0 <= found <= LONGEST:
        raise ValueError("a duration is not negative, and not longer than 100 years")
    return found


Seconds = Annotated[float, BeforeValidator(seconds)]
