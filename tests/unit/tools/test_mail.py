from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from activities.tools import Operation, ToolError
from activities.tools.mail import send_email


class Box:
    """Takes mail, refuses some addresses, and can behave badly after the mail."""

    def __init__(self) -> None:
        self.mails: list[Envelope] = []
        self.answer: str | None = "250 taken"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such person"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.mails.append(envelope)
        if self.answer is None:
            assert isinstance(server.transport, asyncio.WriteTransport)
            server.transport.abort()
            return "250 never seen"
        return self.answer


@pytest.fixture
def box() -> Iterator[tuple[Box, str]]:
    handler = Box()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(handler, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield handler, f"smtp://127.0.0.1:{port}?from=agent@example.com"
    finally:
        controller.stop()


def operation(credential: str) -> Operation:
    return Operation(
        operation_id="run.1:send_email:1",
        tool="send_email",
        thread="run.1",
        workspace=Path(),
        credentials={"smtp": credential},
    )


async def test_a_mail_arrives_once_with_an_id_of_its_operation(box: tuple[Box, str]) -> None:
    handler, server = box
    result = await send_email(
        to=["ann@example.com, bob@example.com", "ann@example.com"],
        subject="Grüße",
        body="Hällo\n",
        op=operation(server),
    )
    [mail] = handler.mails
    assert isinstance(mail.content, bytes)
    parsed = message_from_bytes(mail.content)
    digest = hashlib.sha256(b"run.1:send_email:1").hexdigest()
    assert parsed["Message-ID"].replace("\r\n ", "").strip() == f"<{digest}@example.com>" == result["message_id"]
    assert mail.rcpt_tos == ["ann@example.com", "bob@example.com"]
    assert mail.mail_from == "agent@example.com"
    body = parsed.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert body.decode().strip() == "Hällo"


@pytest.mark.parametrize(
    ("to", "subject"),
    [
        ("ann@example.com", "hi\r\nBcc: eve@example.com"),
        ("ann@example.com", "hi\nthere"),
        ("ann@example.com\r\nBcc: eve@example.com", "hi"),
        ("ann@example.com>\nX: y", "hi"),
        ("Ann <ann@example.com>", "hi"),
        ("ann", "hi"),
        ("", "hi"),
        ([], "hi"),
    ],
)
async def test_headers_cannot_be_smuggled_in(box: tuple[Box, str], to: Any, subject: str) -> None:
    handler, server = box
    with pytest.raises(ToolError):
        await send_email(to=to, subject=subject, body="x", op=operation(server))
    assert handler.mails == []


async def test_refusals_are_told_and_partial_ones_are_no_failure(box: tuple[Box, str]) -> None:
    handler, server = box
    with pytest.raises(ToolError, match=r"nothing was sent: nobody@example\.com: 550 no such person"):
        await send_email(to="nobody@example.com", subject="s", body="b", op=operation(server))
    result = await send_email(to="nobody@example.com,ann@example.com", subject="s", body="b", op=operation(server))
    assert result["refused"] == "nobody@example.com"
    assert len(handler.mails) == 1
    handler.answer = "554 smells of spam"
    with pytest.raises(ToolError, match="554 smells of spam"):
        await send_email(to="ann@example.com", subject="s", body="b", op=operation(server))


async def test_a_server_gone_after_the_mail_leaves_it_in_doubt(box: tuple[Box, str]) -> None:
    handler, server = box
    handler.answer = None
    with pytest.raises(ConnectionError, match="not known"):
        await send_email(to="ann@example.com", subject="s", body="b", op=operation(server))
    assert len(handler.mails) == 1


@pytest.mark.parametrize(
    "credential",
    [
        "smtp://agent:hunter2@127.0.0.1:1?from=agent@example.com",
        "smtp://agent:hunter2@127.0.0.1:99999",
        "http://agent:hunter2@example.com",
        "smtp://agent:hunter2@example.com",
    ],
)
async def test_a_credential_that_does_not_work_is_not_quoted(credential: str) -> None:
    with pytest.raises(ToolError, match="PERDURE_CREDENTIAL_SMTP") as caught:
        await send_email(to="ann@example.com", subject="s", body="b", op=operation(credential))
    error: BaseException | None = caught.value
    while error:
        assert "hunter2" not in str(error)
        error = error.__cause__ or error.__context__
