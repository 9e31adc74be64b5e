"""What the gateway sends, and what it makes of answers that are no answer: over a plain HTTP server."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from activities.errors import ModelRequestRejected, ModelTrouble
from activities.gateway import Gateway
from activities.manifest import Model
from activities.model_server import MOST_REFUSAL
from activities.reply import Ask, Reply
from activities.trail import Trail
from tests.unit.gateway_kit import KEY, USER, Sink

ANSWER = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}]}
Handler = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(handle: Handler) -> Iterator[tuple[str, list[tuple[str, dict[str, str], Any]]]]:
    """A server on this machine; what it was asked: path with query, headers in small letters, body."""
    asked: list[tuple[str, dict[str, str], Any]] = []

    class Plain(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(body)))
            handle(self)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"content-length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def answer(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, json.dumps(ANSWER).encode())


async def ask(url: str, trail: Trail | None = None, **more: str) -> Reply:
    gateway = Gateway({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url, **more}.get)
    question = Ask("Be brief.", [{**USER, "text": "2+2? \N{GRINNING FACE}"}], [], 50_000, None)
    try:
        return await gateway.ask(0, Model(model="m"), question, trail or Trail(), time.monotonic() + 60, Sink())
    finally:
        await gateway.close()


async def test_a_request_has_the_key_the_account_and_the_address_with_its_query() -> None:
    with serving(answer) as (url, asked):
        reply = await ask(f"{url}/v1/?api-version=7", OPENAI_ORG_ID="org-1", OPENAI_PROJECT_ID="p-1")
    assert reply.text == "four"
    [(path, headers, body)] = asked
    assert path == "/v1/chat/completions?api-version=7"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-1", "p-1")
    assert headers["content-type"] == "application/json"
    assert body["messages"][-1]["content"].endswith("\N{GRINNING FACE}")


async def test_a_key_does_not_follow_a_redirect_to_another_host() -> None:
    with serving(answer) as (there, asked):
        moved = there.replace("127.0.0.1", "localhost") + "/v1/chat/completions"
        with serving(lambda handler: send(handler, 307, b"", location=moved)) as (url, _):
            await ask(url)
    [(_, headers, body)] = asked
    assert "authorization" not in headers
    assert body["model"] == "m"


async def test_a_redirect_that_leads_nowhere_is_refused_once() -> None:
    nowhere = serving(lambda handler: send(handler, 304, b""))
    with nowhere as (url, asked), pytest.raises(ModelRequestRejected, match="HTTP 304"):
        await ask(url)
    assert len(asked) == 1


async def test_a_redirect_in_a_circle_is_trouble() -> None:
    around = serving(lambda handler: send(handler, 307, b"", location="/again"))
    with around as (url, _), pytest.raises(ModelTrouble, match="TooManyRedirects"):
        await ask(url)


async def test_a_refusal_without_end_is_read_to_a_limit() -> None:
    sent: list[int] = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(400)
        handler.end_headers()
        try:
            while len(sent) < 1000:
                handler.wfile.write(b"x" * 65_536)
                sent.append(65_536)
        except OSError:
            return

    with serving(endless) as (url, _), pytest.raises(ModelRequestRejected, match="HTTP 400: xxx") as caught:
        await ask(url)
    assert len(str(caught.value)) < 1000
    assert sum(sent) < 1000 * 65_536, f"all of it was read, not {MOST_REFUSAL} bytes"


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'"no"', b'{"error": null}', b'{"error": "no"}', b"\xff\xfe"])
async def test_a_refusal_in_any_form_has_a_name(body: bytes) -> None:
    refusing = serving(lambda handler: send(handler, 401, body))
    with refusing as (url, _), pytest.raises(ModelRequestRejected, match="HTTP 401"):
        await ask(url)
