"""The model gateway: one question to one route over HTTP, one whole reply or one named failure.

Who retries: the SDK never; this module for a few seconds (tenacity), since a dropped connection is cheap to try again;
Temporal beyond that, with the slot free. A reply counts only when it is whole: nothing is kept of one that was cut.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from urllib.parse import urlsplit

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_any, wait_exponential
from tenacity.stop import stop_base

from activities import wire_chat, wire_responses
from activities.errors import InvalidModelOutput, ModelRequestRejected, ModelTrouble, cut, redact, spellings
from activities.manifest import Model
from activities.profiles import quirk_behind, quirks_of
from activities.refusals import Filtered, of_object, of_status
from activities.reply import Ask, Passing, Reply, ServerError, Sink
from activities.structured import mode_of
from activities.trail import Trail
from activities.wire_body import read_objects

QUICK_ATTEMPTS = 3
DRAIN_SECONDS = 0.5
MOST_UNUSABLE = 8
"""Answers to one turn that are no answers, each of which may have cost something; then InvalidModelOutput."""

MOST_CUT = 16
"""Answers to one turn that had begun, and so are paid, but were never whole; then InvalidModelOutput. Only the first
few of them are asked again quickly, so that a server has some eight minutes to come to itself."""

MOST_REFUSAL = 256 * 1024
"""Bytes of an answer with an error status that are read."""

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
PATHS = {"chat": "/chat/completions", "responses": "/responses"}
ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
OFFICIAL = "https://api.openai.com/v1"
"""Where a bundle's model is, if the worker's settings name no other address."""

Lookup = Callable[[str], str | None]
"""Gives the value of a named environment variable."""


class Gateway:
    """Clients for the model servers that the bundles name, one for each address, key and set of time limits."""

    def __init__(self, lookup: Lookup, secrets: Sequence[str] = ()) -> None:
        self._lookup, self._secrets = lookup, secrets
        self._clients: dict[tuple[str, str, float, float], httpx.AsyncClient] = {}

    async def ask(self, number: int, route: Model, ask: Ask, trail: Trail, until: float, sink: Sink) -> Reply:
        """One answer of route `number`, by `until` (monotonic seconds). What failed on the way is booked in `trail`.

        Raises ModelTrouble (passing), RateLimited, ModelRequestRejected, ContextOverflow or InvalidModelOutput, with no
        secret in any message.
        """
        client, secrets = self._client(route)
        tries = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, Passing) and _is_cheap(error, trail)),
            stop=stop_any(stop_after_attempt(QUICK_ATTEMPTS), _StopAt(until - 30)),
            wait=wait_exponential(multiplier=0.3, max=3),
            reraise=True,
        )
        try:
            async for attempt in tries:
                with attempt:
                    return await self._learning(client, number, route, ask, trail, until, sink, secrets)
        except Passing as error:
            said = f"{route.model}: {error}"
            if error.unusable and trail.unusable >= MOST_UNUSABLE:
                raise InvalidModelOutput(f"{said}; {trail.unusable} answers to this turn were none") from None
            if error.cut and trail.cut >= MOST_CUT:
                raise InvalidModelOutput(f"{said}; {trail.cut} answers to this turn began and were cut off") from None
            raise ModelTrouble(said) from None
        raise AssertionError("unreachable: tenacity re-raises")

    def secrets_of(self, routes: Sequence[Model]) -> list[str]:
        """What must not be shown or recorded of what these routes' servers send, in every spelling."""
        found = [self._lookup(route.api_key_env) or "" for route in routes]
        found += [_password(self._lookup(route.base_url_env) or "") for route in routes]
        return spellings([*(secret.strip() for secret in found), *self._secrets])

    async def close(self) -> None:
        """Closes the connections."""
        await asyncio.gather(*(client.aclose() for client in self._clients.values()))

    def _client(self, route: Model) -> tuple[httpx.AsyncClient, list[str]]:
        base_url = (self._lookup(route.base_url_env) or "").strip()
        key = (self._lookup(route.api_key_env) or "").strip()
        if not key and not base_url:
            raise ModelRequestRejected(
                f"{route.model}: neither {route.api_key_env} nor {route.base_url_env} is set on the worker: set one"
            )
        idle = route.idle_timeout if route.stream else route.total_timeout
        which = (base_url, key, route.connect_timeout, idle)
        if which not in self._clients:
            account = {header: value for header, name in ACCOUNT.items() if (value := self._lookup(name))}
            self._clients[which] = _connect(route, base_url, key, idle, account)
        return self._clients[which], self.secrets_of([route])

    async def _learning(
        self,
        client: httpx.AsyncClient,
        number: int,
        route: Model,
        ask: Ask,
        trail: Trail,
        until: float,
        sink: Sink,
        secrets: list[str],
    ) -> Reply:
        """Asks; a refusal that a known quirk of servers explains is mended, remembered and asked again, once each."""
        while True:
            quirks = quirks_of(route, trail.learned(number))
            mode = mode_of(route, ask, quirks)
            wire = wire_responses if route.api == "responses" else wire_chat
            body = wire.request_body(route, ask, quirks, mode)
            await sink.start()
            collector = wire.Collector(route, body, mode, sink)
            try:
                reply = await self._once(client, route, body, collector, until, secrets)
            except _Refused as refused:
                quirk = quirk_behind(refused.status, refused.said, quirks, wire.features(body))
                trail.book(collector.cost())
                if quirk is None:
                    raise refused.failure from None
                trail.learn(number, quirk)
            except Filtered:
                usage = collector.cost() or trail.one()
                return Reply(finish_reason="content_filter", model=route.model, route=number, usage=usage)
            except Passing as error:
                cost = collector.cost()
                error.cut = cost is not None and not error.unusable
                trail.book(cost, unusable=error.unusable, cut=error.cut, sent=error.sent)
                raise
            else:
                reply.route, reply.quirks = number, trail.learned(number)
                return _without(reply, secrets)

    async def _once(
        self,
        client: httpx.AsyncClient,
        route: Model,
        body: dict[str, Any],
        collector: "wire_chat.Collector | wire_responses.Collector",
        until: float,
        secrets: list[str],
    ) -> Reply:
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
        except (OSError, ValueError) as error:
            raise Passing(f"the answer cannot be read ({type(error).__name__})") from None
        except Passing as error:
            raise Passing(redact(str(error), secrets), unusable=error.unusable) from None


def _connect(route: Model, base_url: str, key: str, idle: float, account: dict[str, str]) -> httpx.AsyncClient:
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


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""


def _is_cheap(error: Passing, trail: Trail) -> bool:
    """Whether asking again at once costs little."""
    return not error.unusable and not (error.cut and trail.cut >= QUICK_ATTEMPTS)


class _StopAt(stop_base):
    """Stops at a moment of the monotonic clock."""

    def __init__(self, moment: float) -> None:
        self._moment = moment

    def __call__(self, retry_state: RetryCallState) -> bool:
        return time.monotonic() > self._moment


class _Refused(Exception):
    """A request that was answered with an error status."""

    def __init__(self, status: int, said: str, failure: Exception) -> None:
        super().__init__(said)
        self.status, self.said, self.failure = status, said, failure


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
    except ValueError:
        body = None
    told = body.get("error", body) if isinstance(body, dict) else body
    said = told.get("message") if isinstance(told, dict) else told
    said = cut(redact(str(said or text.strip() or answer.reason_phrase), secrets), 500)
    failure = of_status(answer, told if isinstance(told, dict) else {}, route, said)
    return failure if isinstance(failure, Filtered) else _Refused(answer.status_code, said, failure)


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
    return failure if isinstance(failure, Filtered | Passing) else _Refused(200, str(told), failure)


def _without(reply: Reply, secrets: list[str]) -> Reply:
    """The reply without what must not be recorded: a server may echo what it was sent."""
    reply.text = redact(reply.text, secrets)
    reply.refusal = redact(reply.refusal, secrets) if reply.refusal else None
    reply.model = redact(reply.model, secrets)
    reply.calls = [
        type(call)(redact(call.provider_id, secrets), redact(call.name, secrets), redact(call.arguments, secrets))
        for call in reply.calls
    ]
    if reply.reasoning and "text" in reply.reasoning:
        reply.reasoning["text"] = redact(reply.reasoning["text"], secrets)
    return reply


__all__ = ["Gateway", "InvalidModelOutput", "Lookup", "Reply"]
