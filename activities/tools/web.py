"""Reading a web page, and telling people through a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from activities.tools.addresses import Resolver, Target, checked_addresses, system_resolver, target_of
from activities.tools.declaration import tool
from activities.tools.errors import ToolError
from activities.tools.files import capped
from activities.tools.operation import Operation, credential_key
from activities.tools.pages import readable

BODY_LIMIT = 2_000_000
"""Bytes of a page that are read."""
TIME_LIMIT = 20.0
"""Seconds for a page with all its redirects."""
REDIRECTS = 5
_HEADERS = {"User-Agent": "perdure", "Accept": "text/html, text/*, application/json, */*;q=0.5"}
_PASSING = frozenset({408, 425, 429})


def ask_for_other_hosts(arguments: dict[str, Any], options: dict[str, Any]) -> str | None:
    """A reason to ask a person: the host is none of the bundle's `hosts`."""
    try:
        target = target_of(str(arguments.get("url", "")))
    except ToolError:
        return None  # nothing to ask about: fetch refuses it
    return None if target.matches(_hosts(options)) else f"{target.host} is not among the hosts of the bundle"


@tool(effect="read", timeout=30, guard=ask_for_other_hosts)
async def fetch(url: str, *, op: Operation) -> str:
    """Read a web page or text file by GET. Pages come as text, links as text (url).

    Args:
        url: the address, http or https
    """
    return await get(url, hosts=_hosts(op.options), private=op.private_hosts)


@tool(effect="idempotent")
async def notify(text: str, *, op: Operation) -> str:
    """Send a short notice to the people who follow this run, over their webhook.

    Args:
        text: the notice
    """
    url = await op.credential("notify")
    status = await _post(url, {"text": text}, op.idempotency_key)
    if 200 <= status < 300:
        return "sent"
    message = f"the webhook answered with status {status}"
    if status >= 500 or status in _PASSING:
        raise ConnectionError(message)
    raise ToolError(f"{message}; the operator may check the credential 'notify' (PERDURE_CREDENTIAL_NOTIFY)")


async def get(
    url: str,
    *,
    hosts: Sequence[str],
    private: Sequence[str],
    resolve: Resolver = system_resolver,
    seconds: float = TIME_LIMIT,
) -> str:
    """The text at `url`. Redirects stay on its host and `hosts`; `private` are the private places allowed.

    Raises `ToolError` for all that goes wrong: the model may ask again, or elsewhere.
    """
    target = first = target_of(url)
    try:
        # trust_env=False: a proxy from the environment would connect for us, to addresses that nobody checked.
        async with asyncio.timeout(seconds), httpx.AsyncClient(trust_env=False, timeout=seconds) as client:
            for _ in range(REDIRECTS + 1):
                if target.host != first.host and not target.matches(hosts):
                    raise ToolError(
                        f"{first.url} redirects to {target.host}, which is not among the hosts of the bundle"
                    )
                response = await _open(client, target, await checked_addresses(target, private, resolve))
                try:
                    if not response.has_redirect_location:
                        return await _text(response, target, moved=target is not first)
                    target = _next(target, response.headers["Location"])
                finally:
                    await response.aclose()
    except TimeoutError:
        raise ToolError(f"{target.host} gave no whole answer within {seconds:g} s") from None
    except httpx.HTTPError as error:
        raise ToolError(f"{target.host} could not be read: {type(error).__name__} {error}".rstrip()) from error
    raise ToolError(f"{first.url} redirects more than {REDIRECTS} times")


async def _open(client: httpx.AsyncClient, target: Target, addresses: Sequence[str]) -> httpx.Response:
    """Asks the first address that takes the connection. Name and certificate are still those of the host."""
    failure: httpx.HTTPError | None = None
    for address in addresses:
        request = client.build_request(
            "GET",
            target.url.copy_with(host=address),
            headers={**_HEADERS, "Host": target.url.netloc.decode("ascii")},
            extensions={"sni_hostname": target.host},
        )
        try:
            return await client.send(request, stream=True, follow_redirects=False)
        except httpx.ConnectError as error:
            failure = error
    raise failure or httpx.ConnectError("no address")


def _next(target: Target, location: str) -> Target:
    try:
        return target_of(str(target.url.join(location)))
    except httpx.InvalidURL as error:
        raise ToolError(f"{target.host} redirects to an invalid URL") from error


async def _text(response: httpx.Response, target: Target, moved: bool) -> str:
    if response.status_code >= 400:
        raise ToolError(f"{target.url} answered with status {response.status_code} {response.reason_phrase}".rstrip())
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) > BODY_LIMIT:
            break
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    # In a thread: two megabytes of HTML take a second, and other tools share this loop.
    text = await asyncio.to_thread(readable, bytes(data[:BODY_LIMIT]), kind, response.charset_encoding, str(target.url))
    notes = [f"[redirected to {target.url}]"] if moved else []
    if len(data) > BODY_LIMIT:
        notes.append(f"[only the first {BODY_LIMIT} bytes were read]")
    return "\n".join([*notes, capped(text)])


async def _post(url: str, body: Mapping[str, Any], key: str) -> int:
    """The status. The URL is a secret: no message, cause or context of an error may hold it."""
    if not url.startswith(("http://", "https://")):
        raise ToolError(
            f"the credential 'notify' is not an http or https URL; see PERDURE_CREDENTIAL_{credential_key('notify')}"
        )
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=TIME_LIMIT) as client:
            response = await client.post(url, json=body, headers={"Idempotency-Key": key})
            return response.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        failure = type(error).__name__
    raise ConnectionError(f"the webhook could not be reached ({failure})")


def _hosts(options: Mapping[str, Any]) -> list[str]:
    hosts = options.get("hosts", ())
    return [str(host) for host in hosts] if isinstance(hosts, (list, tuple)) else [str(hosts)]
