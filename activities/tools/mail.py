"""Sending mail over SMTP."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import parse_qs, unquote, urlsplit

import aiosmtplib

from activities.tools.declaration import tool
from activities.tools.errors import ToolError
from activities.tools.operation import Operation

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253}[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_TIMEOUT = 20.0
_MENDING = "the operator may check the credential 'smtp' (PERDURE_CREDENTIAL_SMTP)"


@tool(effect="once", timeout=60)
async def send_email(to: str | list[str], subject: str, body: str, *, op: Operation) -> dict[str, str]:
    """Send an e-mail of plain text.

    Args:
        to: the address, or several
        subject: one line
        body: the text
    """
    server = server_of(await op.credential("smtp"))
    message = compose(server.sender, addresses_of(to), subject, body, op.operation_id)
    client = await connected(server)
    try:
        refused = await deliver(client, message)
    finally:
        # The mail is accepted or not by now; a poor farewell changes nothing.
        with contextlib.suppress(aiosmtplib.SMTPException, OSError):
            await client.quit()
        client.close()
    result = {"message_id": message["Message-ID"], "to": message["To"]}
    if refused:
        result["refused"] = ", ".join(sorted(refused))
    return result


@dataclass(frozen=True)
class MailServer:
    """Where mail goes out, as the credential `smtp` says: smtp(s)://user:password@host:port?from=address."""

    host: str
    port: int
    tls: bool
    user: str | None
    password: str | None = field(repr=False)
    sender: str


def server_of(credential: str) -> MailServer:
    """Raises `ToolError` without quoting the credential."""
    problem = ""
    try:
        url = urlsplit(credential.strip())
        tls = url.scheme == "smtps"
        port = url.port or (465 if tls else 587 if url.username else 25)
        given = parse_qs(url.query).get("from", [unquote(url.username or "")])[0]
        if url.scheme not in ("smtp", "smtps") or not url.hostname:
            problem = "is not smtp://user:password@host:port or smtps://…"
        elif not _ADDRESS.fullmatch(given):
            problem = "names no sender; add ?from=address"
        else:
            user, password = (unquote(part) if part else None for part in (url.username, url.password))
            return MailServer(url.hostname, port, tls, user, password, given)
    except ValueError:
        problem = "is not a URL"
    raise ToolError(f"the credential 'smtp' {problem}; {_MENDING}")


def compose(sender: str, to: list[str], subject: str, body: str, operation_id: str) -> EmailMessage:
    """The mail. Its Message-ID follows from the operation, so that a doubled one can be told by it."""
    if _CONTROL.search(subject):
        raise ToolError("the subject must be one line, without control characters")
    message = EmailMessage()
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Subject"] = subject
    message["Date"] = format_datetime(datetime.now(UTC))
    digest = hashlib.sha256(operation_id.encode()).hexdigest()
    message["Message-ID"] = f"<{digest}@{sender.rpartition('@')[2]}>"
    message.set_content(body)
    return message


def addresses_of(to: str | list[str]) -> list[str]:
    given = [part.strip() for text in ([to] if isinstance(to, str) else to) for part in text.split(",")]
    addresses = list(dict.fromkeys(part for part in given if part))
    if not addresses:
        raise ToolError("there is no address to send to")
    for address in addresses:
        if not _ADDRESS.fullmatch(address) or ".." in address:
            raise ToolError(f"{address!r} is not an e-mail address; give name@host only")
    return addresses


async def connected(server: MailServer) -> aiosmtplib.SMTP:
    """Until here nothing was sent, and every failure says so: it is the model's to judge, not in doubt."""
    client = aiosmtplib.SMTP(hostname=server.host, port=server.port, use_tls=server.tls, timeout=_TIMEOUT)
    try:
        await client.connect()
        if server.user and server.password:
            await client.login(server.user, server.password)
    except (aiosmtplib.SMTPException, OSError) as error:
        failure = type(error).__name__  # not its text: a server may quote what it was sent
    else:
        return client
    client.close()
    raise ToolError(f"nothing was sent: the mail server did not let us in ({failure}); {_MENDING}")


async def deliver(client: aiosmtplib.SMTP, message: EmailMessage) -> list[str]:
    """The addresses refused while others were accepted. A server that answers no has not taken the mail; one that
    goes away without an answer may have."""
    try:
        refused, _ = await client.send_message(message)
    except aiosmtplib.SMTPRecipientsRefused as error:
        reasons = "; ".join(f"{one.recipient}: {one.code} {one.message}" for one in error.recipients)
        raise ToolError(f"the mail server refused every address, nothing was sent: {reasons}"[:1000]) from error
    except aiosmtplib.SMTPResponseException as error:
        if 400 <= error.code < 600:
            raise ToolError(f"the mail server refused the mail: {error.code} {error.message}"[:1000]) from error
        failure = "an answer that is no SMTP"
    except (aiosmtplib.SMTPException, OSError) as error:
        failure = type(error).__name__
    else:
        return list(refused)
    raise ConnectionError(f"whether the mail server took the mail is not known ({failure})")
