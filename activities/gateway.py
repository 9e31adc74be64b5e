"""The model gateway: one request over HTTP, one reply or one named failure.

Who retries: the SDK never; this module for a few seconds (tenacity), since a dropped connection is cheap to try again;
Temporal beyond that, with the slot free. A reply counts only when it is whole: nothing is kept of one that was cut.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import openai
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from activities.errors import (
    ContextOverflow,
    InvalidModelOutput,
    ModelRequestRejected,
    ModelTrouble,
    RateLimited,
    cut,
    redact,
)
from activities.judge import RawCall
from activities.manifest import Model, Price
from workflows.records import Usage

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 60.0
TOTAL_SECONDS = 600.0
QUICK_ATTEMPTS = 3

Lookup = Callable[[str], str | None]
"""Gives the value of a named environment variable."""


@dataclass
class Reply:
    """A whole answer of the model. `cut`: the output limit ended it."""

    text: str = ""
    refusal: str | None = None
    calls: list[RawCall] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    cut: bool = False


class _Passing(Exception):
    """A fault that may be gone in a moment."""


class Gateway:
    """Clients for the model servers that the bundles name, one for each address and key."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._clients: dict[tuple[str, str], openai.AsyncOpenAI] = {}

    async def ask(
        self,
        route: Model,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        form: dict[str, Any] | None = None,
    ) -> Reply:
        """One answer; JSON of a schema where `form` (its name and the schema) is given. Raises ModelTrouble (passing),
        RateLimited, ModelRequestRejected, ContextOverflow or InvalidModelOutput, with no secret in any message."""
        client, secrets = self._client(route)
        body = request_body(route, messages, tools)
        if form is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        tries = AsyncRetrying(
            retry=retry_if_exception_type(_Passing),
            stop=stop_after_attempt(QUICK_ATTEMPTS),
            wait=wait_exponential(multiplier=0.3, max=3),
            reraise=True,
        )
        try:
            async for attempt in tries:
                with attempt:
                    return await self._once(client, route, body, secrets)
        except _Passing as error:
            raise ModelTrouble(f"{route.model}: {error}") from None
        raise AssertionError("unreachable: tenacity re-raises")

    async def close(self) -> None:
        """Closes the connections."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    def _client(self, route: Model) -> tuple[openai.AsyncOpenAI, list[str]]:
        base_url = self._lookup(route.base_url_env) or ""
        key = self._lookup(route.api_key_env) or ""
        if not key and not base_url:
            raise ModelRequestRejected(
                f"{route.model}: neither {route.api_key_env} nor {route.base_url_env} is set on the worker: set one"
            )
        if (base_url, key) not in self._clients:
            self._clients[base_url, key] = openai.AsyncOpenAI(
                api_key=key or "not-needed",
                base_url=base_url or None,
                max_retries=0,
                timeout=openai.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS),
            )
        return self._clients[base_url, key], [key]

    async def _once(self, client: openai.AsyncOpenAI, route: Model, body: dict[str, Any], secrets: list[str]) -> Reply:
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                answer = await client.chat.completions.create(**_past_the_checks(body))
                parts = answer if route.stream else _single(answer)
                reply = await gather_reply(parts, route)
        except TimeoutError:
            raise ModelTrouble(f"{route.model}: no whole answer within {TOTAL_SECONDS:g} s") from None
        except openai.APIStatusError as error:
            raise classify(error, route, secrets) from None
        except openai.APIConnectionError as error:
            raise _Passing(f"the connection failed ({type(error.__cause__ or error).__name__})") from None
        except openai.APIError as error:
            raise _Passing(f"the server reported an error: {_short(error, secrets)}") from None
        except (openai.OpenAIError, ValueError) as error:
            raise _Passing(f"the answer cannot be read ({type(error).__name__})") from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2", "h11"):
                raise
            raise _Passing(f"the answer was cut off ({type(error).__name__})") from None  # the SDK lets these through
        return reply


def request_body(route: Model, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The body of a Chat Completions request; only what the bundle sets is sent."""
    body: dict[str, Any] = {"model": route.model, "messages": messages, "stream": route.stream}
    if tools:
        body["tools"] = tools
    if route.max_output_tokens is not None:
        body["max_tokens" if _is_compatible(route) else "max_completion_tokens"] = route.max_output_tokens
    if route.temperature is not None:
        body["temperature"] = route.temperature
    if route.stream:
        body["stream_options"] = {"include_usage": True}
    return body


def _past_the_checks(body: dict[str, Any]) -> dict[str, Any]:
    """The arguments for the SDK. It walks typed arguments in Python, which for a context of a thousand messages holds
    the event loop for a second (measured); what stands in `extra_body` goes out as it is."""
    large = {key: body[key] for key in ("messages", "tools") if key in body}
    return {**body, **{key: [] for key in large}, "extra_body": large}


def _is_compatible(route: Model) -> bool:
    """Servers that only speak the older form of the limit; OpenAI's own reasoning models refuse it."""
    return not route.model.startswith(("gpt-", "o1", "o3", "o4"))


async def _single(answer: Any) -> AsyncIterator[Any]:
    yield answer


async def gather_reply(parts: AsyncIterator[Any], route: Model) -> Reply:
    """Puts a reply together out of chunks (or the one whole answer). Raises _Passing unless it is whole."""
    reply, calls = Reply(model=route.model), dict[int, dict[str, str]]()
    text: list[str] = []
    refusal: list[str] = []
    usage, keys = None, set[str]()
    async for part in parts:
        keys.update(key for key, value in part.to_dict().items() if value)
        usage = part.usage or usage
        reply.model = part.model or reply.model
        if (extra := part.to_dict().get("error")) is not None:
            raise _Passing(f"the server reported an error inside its answer ({_keys(extra)})")
        for choice in (part.choices or [])[:1]:
            said = getattr(choice, "delta", None) or getattr(choice, "message", None)
            reply.finish_reason = choice.finish_reason or reply.finish_reason
            if said is None:
                continue
            text.append(said.content or "")
            refusal.append(getattr(said, "refusal", None) or "")
            for position, call in enumerate(said.tool_calls or []):
                _collect(calls, getattr(call, "index", None), position, call)
    reply.text, reply.refusal = "".join(text), "".join(refusal) or None
    reply.calls = [RawCall(entry["id"], entry["name"], entry["arguments"]) for entry in calls.values()]
    if reply.finish_reason is None:
        if not (reply.text or reply.calls or reply.refusal):
            raise _Passing(f"the answer holds no choice (its keys: {', '.join(sorted(keys)) or 'none'})")
        raise _Passing("the answer ended without a finish reason: it was cut off")
    reply.usage = price_usage(usage, route.price)
    most = route.max_output_tokens
    reply.cut = reply.finish_reason == "length" or (most is not None and reply.usage.output_tokens >= most)
    return reply


def _collect(calls: dict[int, dict[str, str]], index: int | None, position: int, call: Any) -> None:
    entry = calls.setdefault(position if index is None else index, {"id": "", "name": "", "arguments": ""})
    entry["id"] = call.id or entry["id"]
    if call.function is not None:
        entry["name"] = call.function.name or entry["name"]
        entry["arguments"] += call.function.arguments or ""


def price_usage(usage: Any, price: Price) -> Usage:
    """The server's own count at the bundle's prices; without one, zeros marked as an estimate."""
    if usage is None:
        return Usage(requests=1, estimated=True)
    cached = getattr(usage.prompt_tokens_details, "cached_tokens", None) or 0
    cached_price = price.input if price.cached_input is None else price.cached_input
    fresh = max(0, usage.prompt_tokens - cached)
    cost = (fresh * price.input + cached * cached_price + usage.completion_tokens * price.output) / 1e6
    return Usage(
        requests=1,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=cached,
        cost_usd=round(cost, 9),
    )


def classify(error: openai.APIStatusError, route: Model, secrets: list[str]) -> Exception:
    """The named failure for an HTTP status."""
    status, text = error.status_code, f"{route.model}: HTTP {error.status_code}: {_short(error, secrets)}"
    if status in (429, 503):
        wait = retry_after(error.response.headers.get("retry-after"))
        if wait is not None and wait > route.retry_after_cap:
            return RateLimited(f"{text}; it asks to wait {wait:.0f} s", wait)
        return ModelTrouble(text, retry_after=wait)
    if status in (408, 409, 425) or status >= 500:
        return _Passing(f"HTTP {status}: {_short(error, secrets)}")
    if error.code == "context_length_exceeded" or "context length" in str(error.message).lower():
        return ContextOverflow(f"{text}. The context is too long for this model")
    return ModelRequestRejected(text)


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a Retry-After header in either form; None when there is none that can be read."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _short(error: openai.APIError, secrets: list[str]) -> str:
    return cut(redact(str(error.message), secrets), 500)


def _keys(value: Any) -> str:
    return ", ".join(sorted(value)) if isinstance(value, dict) else type(value).__name__


__all__ = ["Gateway", "InvalidModelOutput", "Lookup", "Reply"]
