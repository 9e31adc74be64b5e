"""What an error of a model server means: an HTTP status, or an error object inside an answer of status 200."""

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from activities.errors import ContextOverflow, Failure, ModelRequestRejected, ModelTrouble, RateLimited, cut
from activities.manifest import Model
from activities.reply import Passing

LONGEST_WAIT = 7 * 86_400.0
"""Seconds. A server that asks for more is asked again after a week."""

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|too many (input )?tokens|prompt is too long|input is too long"
    r"|exceeds? the (available|maximum) (context|number of (input )?tokens)|reduce the length of the (messages|prompt)"
)
_OVERFLOW_CODES = ("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error")
_FILTER_CODES = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation")


class Filtered(Exception):
    """A filter refused the request itself, which some servers report as a client error."""


def of_status(error: openai.APIStatusError, route: Model, said: str) -> Exception:
    """The failure for an HTTP status. `said` is the server's message without secrets."""
    status, code = error.status_code, str(error.code or "").lower()
    text = f"{route.model}: HTTP {status}: {said}"
    if is_overflow(code, said) and status != 429:
        return ContextOverflow(f"{text}. The context is too long for this model", said)
    if code in _FILTER_CODES and status < 500:
        return Filtered(text)
    wait = retry_after(error.response.headers)
    if status in (429, 503) or (status >= 500 and wait is not None):
        return waiting(text, wait, route)
    if status in (408, 409, 425) or status >= 500:
        return Passing(f"HTTP {status}: {said}")
    return ModelRequestRejected(text)


def waiting(text: str, wait: float | None, route: Model) -> Failure:
    """The failure of a server that asks to wait: past the bundle's cap it parks the run."""
    if wait is not None and wait > route.retry_after_cap:
        return RateLimited(f"{text}; it asks to wait {wait:.0f} s", wait)
    return ModelTrouble(text, retry_after=wait)


def of_object(body: Any, route: Model, said: str) -> Exception:
    """The failure for an error that came with status 200. Only what is known to be for good is taken for it."""
    code = str(body.get("code") or body.get("type") or "").lower() if isinstance(body, dict) else ""
    if is_overflow(code, said):
        return ContextOverflow(f"{route.model}: {said}. The context is too long for this model", said)
    if code in _FILTER_CODES:
        return Filtered(said)
    keys = ", ".join(sorted(str(key)[:40] for key in body)[:20]) if isinstance(body, dict) else type(body).__name__
    return Passing(f"the server reported an error inside its answer ({keys}): {cut(said, 300)}")


def is_overflow(code: str, said: str) -> bool:
    """Whether the server says that the context is too long. That the asked-for *output* is too long is another thing,
    and so is a rate limit that counts tokens."""
    if code in _OVERFLOW_CODES:
        return True
    text = said.lower()
    return bool(_OVERFLOW.search(text)) and not re.search(r"per (minute|day)|rate.?limit", text)


def retry_after(headers: Any) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` in either form; None when none can be read."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            found = float(value) * scale
        except ValueError:
            try:
                found = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if not math.isnan(found):
            return min(max(0.0, found), LONGEST_WAIT)
    return None
