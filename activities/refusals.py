"""What an error of a model server means: an HTTP status, or an error object inside an answer of status 200."""

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from activities.errors import ContextOverflow, Failure, ModelRequestRejected, ModelTrouble, RateLimited, cut
from activities.manifest import Model
from activities.reply import Passing

LONGEST_WAIT = 7 * 86_400.0
"""Seconds. A server that asks for more is asked again after a week."""

SHORTEST_WAIT = 1.0
"""Seconds. A server that asks for less is not hurried either, since it may go on asking for so little."""

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|too many (input )?tokens|prompt is too long|input is too long"
    r"|exceeds? the (available|maximum) (context|number of (input )?tokens)|reduce the length of the (messages|prompt)"
    r"|exceeds? (the )?context limit|maximum prompt length|range of input length|exceeded model token limit"
    r"|(input|prompt) (tokens?|token count|length)\b.{0,40} exceeds? "
    r"|\binputs`? (tokens \+ `?max_new_tokens`? must be|must have less than)"
    r"|longer than the maximum (model|context|sequence) length|exceeds? (the )?max(imum)? (length|message tokens)"
    r"|prompt (is )?too large|request too large for model|input tokens \+ max tokens exceed"
)
_EITHER = re.compile(r"exceeds? the (maximum|limit) of [\d,]+ tokens")
"""Said of the context and of the output alike."""

_OUTPUT = re.compile(r"max_(completion_|output_|new_)?tokens|(completion|output) tokens")
_OVERFLOW_CODES = (
    *("context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded"),
    *("exceed_context_size_error", "input_too_long", "prompt_too_long"),
)
_QUOTA_CODES = (
    *("402", "insufficient_quota", "insufficient_user_quota", "exceeded_current_quota_error", "insufficient_balance"),
    *("credit_balance_exhausted", "billing_hard_limit_reached", "billing_not_active"),
)
"""There is no money left, which a person can mend and waiting alone does not. `quota` in a text says less: limits by
the minute are called so too."""

_BUSY_CODES = (
    *("engine_overloaded", "engine_overloaded_error", "overloaded", "overloaded_error", "server_overloaded"),
    *("rate_limit_exceeded", "rate_limit_error", "rate_limit_reached", "too_many_requests", "slow_down"),
)
"""Later it may go well, whatever the status is."""

_FILTER_CODES = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation")


class Filtered(Exception):
    """A filter refused the request itself, which some servers report as a client error."""


def of_status(answer: httpx.Response, error: dict[str, Any], route: Model, said: str) -> Exception:
    """The failure for an HTTP status. `error` is the error object of the answer, `said` its message without secrets."""
    status, codes = answer.status_code, _codes(error.get("code"), error.get("type"))
    text = f"{route.model}: HTTP {status}: {said}"
    wait = retry_after(answer.headers)
    if status == 402 or (codes & {*_QUOTA_CODES} and status < 500):
        return _out_of_quota(text, wait, route)
    if status == 413 or (is_overflow(codes, said) and status != 429):
        return ContextOverflow(f"{text}. The context is too long for this model", said)
    if codes & {*_FILTER_CODES} and status < 500:
        return Filtered(text)
    if status in (429, 503) or wait is not None or (codes & {*_BUSY_CODES} and status < 500):
        return waiting(text, wait, route)
    if status in (408, 409, 425, 499) or status >= 500:
        return Passing(f"HTTP {status}: {said}")
    return ModelRequestRejected(text)


def waiting(text: str, wait: float | None, route: Model) -> Failure:
    """The failure of a server that asks to wait: past the bundle's cap it parks the run."""
    if wait is not None and wait > route.retry_after_cap:
        return RateLimited(f"{text}; it asks to wait {wait:.0f} s", wait)
    return ModelTrouble(text, retry_after=None if wait is None else max(wait, SHORTEST_WAIT))


def _out_of_quota(text: str, wait: float | None, route: Model) -> Failure:
    pause = max(wait or 0.0, route.retry_after_cap)
    return RateLimited(f"{text}; the account has no quota left: add to it, then send `resume`", pause)


def _codes(*values: Any) -> set[str]:
    return {str(value).lower() for value in values if value}


def of_object(body: Any, route: Model, said: str) -> Exception:
    """The failure for an error that came with status 200. Only what is known to be for good is taken for it."""
    codes = _codes(body.get("code"), body.get("type")) if isinstance(body, dict) else set()
    if codes & {*_QUOTA_CODES}:
        return _out_of_quota(f"{route.model}: {said}", None, route)
    if is_overflow(codes, said):
        return ContextOverflow(f"{route.model}: {said}. The context is too long for this model", said)
    if codes & {*_FILTER_CODES}:
        return Filtered(said)
    keys = ", ".join(sorted(str(key)[:40] for key in body)[:20]) if isinstance(body, dict) else type(body).__name__
    return Passing(f"the server reported an error inside its answer ({keys}): {cut(said, 300)}")


def is_overflow(codes: set[str], said: str) -> bool:
    """Whether the server says that the context is too long. That the asked-for *output* is too long is another thing,
    and so is a rate limit that counts tokens."""
    if codes & {*_OVERFLOW_CODES}:
        return True
    text = said.lower()
    if re.search(r"per (second|min|hour|day)|rate.?limit|\btpm\b", text):
        return False
    return bool(_OVERFLOW.search(text)) or (bool(_EITHER.search(text)) and not _OUTPUT.search(text))


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
