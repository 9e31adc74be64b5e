"""A model server over HTTP: the client, the one request, and what becomes of an answer that is none.

No secret leaves here in a message, and nothing is kept of an answer that was cut.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx

from activities import wire_chat, wire_responses
from activities.errors import ModelRequestRejected, cut, redact
from activities.manifest import Model
from activities.refusals import Filtered, of_object, of_status
from activities.reply import Passing, Reply, ServerError
from activities.wire_body import read_objects

DRAIN_SECONDS = 0.5
MOST_REFUSAL = 256 * 1024
"""Bytes of an answer with an error status that are read."""

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
PATHS = {"chat": "/chat/completions", "responses": "/responses"}
OFFICIAL = "https://api.openai.com/v1"
"""Where a bundle's model is, if the worker's settings name no other address."""

Collector = wire_chat.Collector | wire_responses.Collector


class Refused(Exception):
    """A request that was answered with an error status."""

    def __init__(self, status: int, said: str, failure: Exception) -> None:
        super().__init__(said)
        self.status, self.said, self.failure = status, said, failure


def connect(route: Model, base_url: str, key: str, idle: float, account: dict[str, str]) -> httpx.AsyncClient:
    """A client. What no request could be sent with is refused by the name of its variable, never by its value."""
    if not (key.isascii() and key.isprintable()):
        raise ModelRequestRejected(f"{route.model}: {route.api_key_env} holds characters that no key has")
    no_address = ModelRequestRejected(f"{route.model}: {route.base_url_env} is no http or https address")
    if base_url and not _is_address(base_url):
        raise no_address
    headers = {"Authorization": f"Bearer {key or 'not-needed'}", "Content-Type": "application/json", **account}
    try:
        url = httpx.URL(base_url or OFFICIAL)
    except httpx.InvalidURL:
        raise no_address from None
    return httpx.AsyncClient(
        base_url=url.copy_with(query=None),
        params=url.params,
        headers=headers,
        follow_redirects=True,
        timeout=httpx.Timeout(idle, connect=route.connect_timeout),
        limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def password(url: str) -> str:
    """The password in an address; empty where there is none."""
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


async def answer_of(
    client: httpx.AsyncClient,
    route: Model,
    body: dict[str, Any],
    collector: Collector,
    until: float,
    secrets: list[str],
) -> Reply:
    """The whole answer of one request, by `until`. Raises Refused, Filtered, a Failure, or Passing."""
    seconds = max(1.0, min(route.total_timeout, until - time.monotonic()))
    answering = False
    try:
        async with asyncio.timeout(seconds), _post(client, route, body) as answer:
            answering = True
            if not answer.is_success:
                raise await _refusal(answer, route, secrets)
            data = answer.aiter_bytes()
            async with aclosing(read_objects(data)) as parts:
                async for part in parts:
                    await collector.feed(part)
            reply = collector.end()
            await _drain(data)
            return reply
    except TimeoutError:
        raise Passing(f"no whole answer within {seconds:.0f} s") from None
    except ServerError as error:
        raise _in_answer(error, route, secrets) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        name = type(error).__name__
        if answering:
            raise Passing(f"the answer was cut off ({name})") from None
        raise Passing(f"the connection failed ({name})", sent=not isinstance(error, NOT_SENT)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise Passing(f"the answer cannot be read ({type(error).__name__})") from None
    except Passing as error:
        raise Passing(redact(str(error), secrets), unusable=error.unusable) from None


def _post(client: httpx.AsyncClient, route: Model, body: dict[str, Any]) -> AbstractAsyncContextManager[httpx.Response]:
    """The request, its answer unread."""
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return client.stream("POST", PATHS[route.api], content=content)


async def _refusal(answer: httpx.Response, route: Model, secrets: list[str]) -> Exception:
    """The failure for an error status, by what the server says of it."""
    read = bytearray()
    async for part in answer.aiter_bytes():
        read += part
        if len(read) >= MOST_REFUSAL:
            break
    text = bytes(read[:MOST_REFUSAL]).decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    told = body.get("error", body) if isinstance(body, dict) else body
    said = told.get("message") if isinstance(told, dict) else told
    said = cut(redact(str(said or text.strip() or answer.reason_phrase), secrets), 500)
    failure = of_status(answer, told if isinstance(told, dict) else {}, route, said)
    return failure if isinstance(failure, Filtered) else Refused(answer.status_code, said, failure)


async def _drain(data: AsyncIterator[bytes]) -> None:
    """Reads what comes after the end, so that the connection can be used again; a server may leave it open."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in data:
                pass
    except Exception:  # noqa: BLE001 - the reply is whole, whatever happens to its connection
        return


def _in_answer(error: ServerError, route: Model, secrets: list[str]) -> Exception:
    told = error.body.get("message") if isinstance(error.body, dict) else error.body
    failure = of_object(error.body, route, cut(redact(str(told), secrets), 500))
    return failure if isinstance(failure, Filtered | Passing) else Refused(200, str(told), failure)
