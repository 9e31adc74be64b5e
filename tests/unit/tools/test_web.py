from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from activities.tools import Operation, ToolError
from activities.tools.addresses import checked_addresses, target_of
from activities.tools.web import BODY_LIMIT, ask_for_other_hosts, fetch, get

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as the test says, and keeps what was asked."""

    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.answers[self.path](self)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, {**self.headers, "body": json.loads(body)}))
        self.server.answers[self.path](self)

    def log_message(self, *_: Any) -> None: ...


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Answer] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def page(body: bytes, kind: str = "text/html", status: int = 200, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def operation(**given: Any) -> Operation:
    plain = {"operation_id": "run.1:t:1", "tool": "t", "thread": "run.1", "workspace": Path()}
    return Operation(**{**plain, **given})


class Resolver:
    """Gives other addresses at each question."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        return [self.answers.pop(0)]


async def refused(url: str, **given: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await get(url, **{"hosts": ["*"], "private": (), "seconds": 3, **given})
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://localhost./",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http://１２７.０.０.１/",
        "http://0.0.0.0/",
        "http://10.1.2.3/",
        "http://172.16.0.1/",
        "http://192.168.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:100.100.100.200]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://example.com@127.0.0.1/",
        "http://user:pw@example.com/",
        "http://127.0.0.1\\@example.com/",
        "http://example.com\t.evil/",
        "http:///etc/passwd",
        "http://",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "data:text/plain,x",
        "example.com",
        "http://example.com:99999/",
        "http://[::1",
        "",
    ],
)
async def test_no_way_into_private_networks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr("activities.tools.web._open", never)
    assert await refused(url)


@pytest.mark.parametrize("url", ["http://93.184.216.34/", "http://[2606:2800:220:1::1]/", "http://[::ffff:8.8.8.8]/"])
async def test_public_addresses_pass(url: str) -> None:
    assert await checked_addresses(target_of(url), (), Resolver())


@pytest.mark.parametrize(
    ("url", "private", "passes"),
    [
        ("http://intranet/", ["intranet"], True),
        ("http://intranet/", ["INTRANET:80"], True),
        ("https://intranet/", ["intranet:80"], False),
        ("http://intranet/", ["10.0.0.0/8"], True),
        ("http://intranet/", ["10.0.0.5"], True),
        ("http://intranet/", ["10.0.0.6", "intra", "nonsense/x"], False),
        ("http://[::ffff:10.0.0.5]/", ["10.0.0.0/8"], True),
        ("http://[::1]:8080/", ["[::1]:8080"], True),
    ],
)
async def test_the_operator_allows_private_places(url: str, private: list[str], passes: bool) -> None:
    check = checked_addresses(target_of(url), private, Resolver("10.0.0.5"))
    if passes:
        assert await check
    else:
        with pytest.raises(ToolError, match="PERDURE_FETCH_PRIVATE"):
            await check


async def test_one_forbidden_address_among_several_is_enough() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "169.254.169.254"]

    with pytest.raises(ToolError, match=r"169\.254\.169\.254"):
        await checked_addresses(target_of("http://example.com/"), (), both)


async def test_the_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    site.answers["/"] = page(b"hello", "text/plain")
    resolver = Resolver("127.0.0.1", "169.254.169.254")
    url = f"http://rebinding.example:{site.server_port}/"
    assert await get(url, hosts=[], private=["127.0.0.1"], resolve=resolver) == "hello"
    assert resolver.answers == ["169.254.169.254"]  # asked once only
    assert site.asked[0][1]["Host"] == f"rebinding.example:{site.server_port}"
    assert "169.254.169.254" in await refused(url, private=["127.0.0.1"], resolve=resolver)
    assert len(site.asked) == 1


async def test_proxies_of_the_environment_are_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site.answers["/"] = page(b"hello", "text/plain")
    assert await get(site.url, hosts=[], private=["127.0.0.1"]) == "hello"


async def test_each_redirect_is_checked_again(site: Site) -> None:
    private = [f"127.0.0.1:{site.server_port}"]

    def to(place: str) -> Answer:
        return page(b"", status=302, Location=place)

    site.answers |= {
        "/meta": to("http://169.254.169.254/"),
        "/file": to("file:///etc/passwd"),
        "/elsewhere": to("http://evil.example/"),
        "/round": to("/round"),
        "/good": to("/end"),
        "/end": page(b"hello", "text/plain"),
    }
    assert "169.254.169.254" in await refused(site.url + "/meta", private=private)
    assert "only http and https" in await refused(site.url + "/file", private=private)
    assert "redirects to evil.example" in await refused(site.url + "/elsewhere", private=private, hosts=["127.*"])
    assert "more than 5 times" in await refused(site.url + "/round", private=private)
    assert await get(site.url + "/good", hosts=[], private=private) == f"[redirected to {site.url}/end]\nhello"


async def test_limits_of_size_and_time(site: Site) -> None:
    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 100_000)

    def slow(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    site.answers |= {"/endless": endless, "/slow": slow}
    text = await get(site.url + "/endless", hosts=[], private=["127.0.0.1"])
    assert text.startswith(f"[only the first {BODY_LIMIT} bytes were read]")
    assert len(text) < 101_000
    assert "within 0.3 s" in await refused(site.url + "/slow", private=["127.0.0.1"], seconds=0.3)


async def test_statuses_and_dead_servers_are_told(site: Site) -> None:
    site.answers["/gone"] = page(b"secret details", status=404)
    assert "status 404 Not Found" in await refused(site.url + "/gone", private=["127.0.0.1"])
    assert "could not be read" in await refused("http://127.0.0.1:1/", private=["127.0.0.1"])


async def test_fetch_uses_the_options_and_settings_of_its_operation(site: Site) -> None:
    site.answers["/"] = page(b"<p>See <a href='/x'>this</a></p>")
    op = operation(private_hosts=("127.0.0.1",), options={"hosts": ["127.0.0.1"]})
    assert await fetch(url=site.url + "/", op=op) == f"See this ({site.url}/x)"


@pytest.mark.parametrize(
    ("url", "hosts", "asks"),
    [
        ("https://example.com/a", ["example.com"], False),
        ("https://EXAMPLE.com./a", ["example.com"], False),
        ("https://www.example.com/", ["*.example.com"], False),
        ("http://example.com:8080/", ["example.com:8080"], False),
        ("https://example.com.evil.org/", ["example.com"], True),
        ("https://evil.org/?example.com", ["example.com"], True),
        ("https://example.com/", [], True),
        ("file:///etc/passwd", [], False),
    ],
)
def test_other_hosts_than_the_bundles_are_asked_about(url: str, hosts: list[str], asks: bool) -> None:
    assert bool(ask_for_other_hosts({"url": url}, {"hosts": hosts})) is asks
