"""What the agent of the scenario meets outside: five sites, a chat webhook, a mail server, and a model.

All of them are real servers on free loopback ports. They run on threads of this process, so a demo or a test can look
at what arrived, and act in the middle of it.
"""

import json
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default as mail_policy
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from scripts.embedded import HOST, free_port
from scripts.scripted_model import Hook, ScriptedModel, serve

HERE = Path(__file__).parent
SITES = HERE / "sites"
SCRIPTS = HERE / "script"
SCRIPT = "market-research"
VENDORS = ("snowglobe-sensors", "kelvin-and-crate", "polarbee-systems", "permafrost-ledger", "icebox-orchard")
SENDER = "agent@example.com"
READER = "research-team@example.com"
STEP_OF_THE_FIRST_KILL = 18
STEP_OF_THE_NOTICE = 21


@dataclass(frozen=True)
class Mail:
    """One mail as the server took it."""

    sender: str
    recipients: tuple[str, ...]
    message_id: str
    subject: str
    body: str


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A worker that is killed in the middle of a request is what the demo is about, and no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def serve_on_a_thread(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Pages(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


class Sink(_Server):
    """A chat webhook. A notice with an `Idempotency-Key` that came before is taken, and counted once."""

    def __init__(self, on_notice: Callable[[], None] | None) -> None:
        super().__init__((HOST, 0), _Webhook)
        self.on_notice = on_notice
        self.notices: dict[str, Any] = {}
        self.requests = 0
        self._lock = threading.Lock()

    def take(self, key: str | None, notice: Any) -> None:
        """Record one request; the hook hears of it when the notice is new."""
        with self._lock:
            self.requests += 1
            key = key or f"request {self.requests}"
            new = key not in self.notices
            self.notices.setdefault(key, notice)
        if new and self.on_notice:
            self.on_notice()


class _Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Sink

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            notice = json.loads(data)
        except ValueError:
            return self._send(400, {"error": "the body is not JSON"})
        self.server.take(self.headers.get("Idempotency-Key"), notice)
        return self._send(200, {"ok": True})

    def do_GET(self) -> None:
        self._send(200, {"notices": list(self.server.notices.values()), "requests": self.server.requests})

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


class _Mailbox:
    """What aiosmtpd calls for every mail."""

    def __init__(self) -> None:
        self.mails: list[Mail] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802, aiosmtpd's name
        content = envelope.content
        message = message_from_bytes(content if isinstance(content, bytes) else b"", policy=mail_policy)
        body = message.get_body(("plain",))
        self.mails.append(
            Mail(
                sender=envelope.mail_from or "",
                recipients=tuple(envelope.rcpt_tos),
                message_id=str(message["Message-ID"] or ""),
                subject=str(message["Subject"] or ""),
                body=body.get_content() if body else "",
            )
        )
        return "250 taken"


class Services:
    """The four servers, from `with Services() as services:` to its end.

    `on_notice` is called right after a notice was recorded and before the webhook answers. `on_turn(script, index)` is
    called before the scripted model answers a request; the index counts from 0. Both run on a server's thread. With
    `model=False` there is no scripted model.
    """

    def __init__(
        self, *, model: bool = True, on_notice: Callable[[], None] | None = None, on_turn: Hook | None = None
    ) -> None:
        self._with_model = model
        self._on_notice = on_notice
        self._on_turn = on_turn
        self._mailbox = _Mailbox()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._sites = _Server((HOST, 0), partial(_Pages, directory=str(SITES)))
            self._sink = Sink(self._on_notice)
            for server in (self._sites, self._sink):
                server.serve_on_a_thread()
                stack.callback(server.close)
            self._smtp = _mail_server(self._mailbox)
            stack.callback(self._smtp.stop)
            self._model: ScriptedModel | None = None
            if self._with_model:
                variables = {"sites": self.sites_url}
                self._model = serve(SCRIPTS, HOST, 0, variables, default_script=SCRIPT, on_turn=self._on_turn)
                stack.callback(self._model.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def sites_url(self) -> str:
        """Where the five sites are, each in a folder of its own."""
        return self._sites.url

    @property
    def site_urls(self) -> list[str]:
        """The start page of each site."""
        return [f"{self.sites_url}/{vendor}/index.html" for vendor in VENDORS]

    @property
    def sites_host(self) -> str:
        """Host and port of the sites, as a private host that `fetch` may reach."""
        return self.sites_url.removeprefix("http://")

    @property
    def webhook_url(self) -> str:
        """Where `notify` posts."""
        return f"{self._sink.url}/notices"

    @property
    def smtp_url(self) -> str:
        """The mail server and the sender, as the credential of `send_email`."""
        return f"smtp://{HOST}:{self._smtp.port}?from={SENDER}"

    @property
    def model_url(self) -> str:
        """The scripted model's base URL; raises LookupError when there is none."""
        if self._model is None:
            raise LookupError("there is no scripted model: Services was made with model=False")
        return self._model.url

    def notices(self) -> list[Any]:
        """The notices, each once."""
        return list(self._sink.notices.values())

    def notice_requests(self) -> int:
        """Requests to the webhook, repeated ones included."""
        return self._sink.requests

    def mails(self) -> list[Mail]:
        """The mails, in the order of their arrival."""
        return list(self._mailbox.mails)

    def model_requests(self) -> dict[int, int]:
        """Requests to the scripted model by turn index, from 0."""
        counts = self._model.stats()["requests"].get(SCRIPT, {}) if self._model else {}
        return {int(index): count for index, count in counts.items()}

    def refused_requests(self) -> list[str]:
        """What the scripted model found wrong with requests that it did not answer."""
        return [entry["message"] for entry in self._model.stats()["refused"]] if self._model else []


def _mail_server(mailbox: _Mailbox) -> Controller:
    """A mail server that answers; aiosmtpd takes no port 0, so one is looked for."""
    for attempt in range(5):
        controller = Controller(mailbox, hostname=HOST, port=free_port())
        try:
            controller.start()
        except OSError:  # somebody took the port in between
            if attempt == 4:
                raise
        else:
            return controller
    raise AssertionError("not reached")
