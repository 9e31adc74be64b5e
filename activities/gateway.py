"""The model gateway: one question to one route over HTTP, one whole reply or one named failure.

Who retries: this module for a few seconds (tenacity), since a dropped connection is cheap to try again;
Temporal beyond that, with the slot free. A reply counts only when it is whole: nothing is kept of one that was cut.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_any, wait_exponential
from tenacity.stop import stop_base

from activities import wire_chat, wire_responses
from activities.errors import InvalidModelOutput, ModelRequestRejected, ModelTrouble, redact, spellings
from activities.manifest import Model
from activities.model_server import Refused, answer_of, connect, password
from activities.profiles import OPPOSITES, quirk_behind, quirks_of
from activities.refusals import Filtered
from activities.reply import Ask, Passing, Reply, Sink, clean
from activities.structured import mode_of
from activities.trail import Trail

QUICK_ATTEMPTS = 3
ACCOUNT = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
MOST_UNUSABLE = 8
"""Answers to one turn that are no answers, each of which may have cost something; then InvalidModelOutput."""

MOST_CUT = 16
"""Answers to one turn that had begun, and so are paid, but were never whole; then InvalidModelOutput. Only the first
few of them are asked again quickly, so that a server has some eight minutes to come to itself."""

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
        found += [password(self._lookup(route.base_url_env) or "") for route in routes]
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
            self._clients[which] = connect(route, base_url, key, idle, account)
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
        """Asks; a refusal that a known quirk of servers explains is mended, remembered and asked again, once each in
        the life of a run. Where what mended one refusal is refused for its opposite, the first is what was wrong."""
        mended: dict[str, Exception] = {}
        while True:
            quirks = quirks_of(route, trail.learned(number))
            mode = mode_of(route, ask, quirks)
            wire = wire_responses if route.api == "responses" else wire_chat
            body = wire.request_body(route, ask, quirks, mode)
            await sink.start()
            collector = wire.Collector(route, body, mode, sink)
            try:
                reply = await answer_of(client, route, body, collector, until, secrets)
            except Refused as refused:
                quirk = quirk_behind(refused.status, refused.said, quirks, wire.features(body))
                trail.book(collector.cost())
                if quirk is None or quirk in trail.learned(number):
                    raise refused.failure from None
                trail.learn(number, quirk)
                if contradicted := mended.get(OPPOSITES.get(quirk, "")):
                    raise contradicted from None
                mended[quirk] = refused.failure
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


def _is_cheap(error: Passing, trail: Trail) -> bool:
    """Whether asking again at once costs little."""
    return not error.unusable and not (error.cut and trail.cut >= QUICK_ATTEMPTS)


class _StopAt(stop_base):
    """Stops at a moment of the monotonic clock."""

    def __init__(self, moment: float) -> None:
        self._moment = moment

    def __call__(self, retry_state: RetryCallState) -> bool:
        return time.monotonic() > self._moment


def _without(reply: Reply, secrets: list[str]) -> Reply:
    """The reply without what must not be recorded: a server may echo what it was sent."""
    reply.text = redact(reply.text, secrets)
    reply.refusal = redact(reply.refusal, secrets) if reply.refusal else None
    reply.model = redact(reply.model, secrets)
    reply.calls = [
        type(call)(redact(call.provider_id, secrets), redact(call.name, secrets), redact(call.arguments, secrets))
        for call in reply.calls
    ]
    if reply.reasoning:
        items = [entry["item"] for entry in reply.reasoning.get("items", ())]
        sealed = [item.pop("encrypted_content", None) for item in items]  # the server wants it back to the letter
        reply.reasoning = json.loads(redact(clean(json.dumps(reply.reasoning, ensure_ascii=False)), secrets))
        for entry, content in zip(reply.reasoning.get("items", ()), sealed, strict=True):
            entry["item"] |= {} if content is None else {"encrypted_content": content}
    return reply


__all__ = ["Gateway", "InvalidModelOutput", "Lookup", "Reply"]
