"""The activity `people.notify`: tells people that a run waits for them, by a signed webhook or by mail.

It runs where the tools run, since it needs credentials. A run never waits for it: what cannot be told is shown.
"""

import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from textwrap import indent
from typing import Any

import aiosmtplib
import httpx
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.canonical import preview
from activities.manifest import Notice
from activities.tools.errors import ToolError
from activities.tools.mail import addresses_of, compose, connected, deliver, server_of
from activities.tools.operation import credential_key
from activities.world import World
from workflows.catalog import NOTIFY
from workflows.messages import decode_json
from workflows.notices import NOTICE_FAILED, Noticed, NoticeRequest

SECONDS = 15.0


class NoticeActivities:
    """Sends notices."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=NOTIFY.name)
    async def notify(self, request: NoticeRequest) -> Noticed:
        """Sends every notice of this stage. What a retry may mend fails the attempt; what was sent is not sent again,
        and should it be, it carries the same key."""
        approvals = (await self._world.bundles.manifest(request.bundle)).file.approvals
        times = approvals.times()
        if request.stage >= len(times):
            return Noticed()  # the run has gone over to a bundle that tells people less often
        after = times[request.stage]
        (done, failed), passing = earlier_attempts(), list[str]()
        for index, notice in enumerate(approvals.notify):
            if notice.after != after or index in done:
                continue
            try:
                await self._send(notice, request)
            except ToolError as error:
                failed.append(self._world.redact(f"{_name(notice)}: {error}")[:300])
            except (ConnectionError, OSError, aiosmtplib.SMTPException) as error:
                passing.append(f"{_name(notice)}: {type(error).__name__}")
                continue
            done.append(index)
            activity.heartbeat(done, failed)
        if passing:
            raise ApplicationError("; ".join([*failed, *passing]), type=NOTICE_FAILED)
        return Noticed(failed=failed)

    async def _send(self, notice: Notice, request: NoticeRequest) -> None:
        """Raises ToolError for what no retry mends, and ConnectionError, OSError or SMTPException for the rest."""
        body = self._world.redact(json.dumps(body_of(request), ensure_ascii=False))
        key = f"{request.thread}:{request.item['code']}:{request.stage}"
        if notice.webhook is not None:
            url, secret = self._credential(notice.webhook), self._credential(f"{notice.webhook}_key")
            await post(
                url, body.encode(), {**signature(secret, body.encode(), int(time.time())), "Idempotency-Key": key}
            )
            return
        server = server_of(self._credential("smtp"))
        subject = f"[perdure] {request.item['kind']} {request.item['code']}: {request.item['tool'] or 'the run'}"
        text = self._world.redact(text_of(request))
        message = compose(server.sender, addresses_of(notice.email), preview(subject, 150), text, key)
        try:
            client = await connected(server)
        except ToolError:
            raise ConnectionError("the mail server did not let us in") from None
        try:
            await deliver(client, message)
        finally:
            with contextlib.suppress(aiosmtplib.SMTPException, OSError):
                await client.quit()
            client.close()

    def _credential(self, name: str) -> str:
        wanted = credential_key(name)
        found = next((value for key, value in self._world.credentials.items() if credential_key(key) == wanted), "")
        if not found:
            raise ToolError(f"this worker has no credential {name!r}: set PERDURE_CREDENTIAL_{wanted}")
        return found


def body_of(request: NoticeRequest) -> dict[str, Any]:
    """What a webhook gets: the item as the query `pending` shows it, the goal, and whether it is the first notice."""
    return {"event": "pending" if request.stage == 0 else "reminder", "goal": request.goal, **request.item}


def _quoted(text: Any) -> str:
    """What an agent may have worded: no line of it looks like a command of ours."""
    return indent(str(text), "> ", lambda _: True)


def text_of(request: NoticeRequest) -> str:
    """The same as a mail."""
    item = request.item
    lines = [_quoted(item["question"]), f"Run: {item['owner']}", f"Its goal:\n{_quoted(request.goal)}"]
    if item.get("reason"):
        lines.append(f"It asks because:\n{_quoted(item['reason'])}")
    if item.get("arguments") is not None:
        arguments = json.dumps(item["arguments"], ensure_ascii=False, indent=1)
        lines.append(f"{item['tool'] or 'About'}:\n{_quoted(arguments)}")
    if item.get("deadline"):
        lines.append(f"Until {item['deadline']}; silence is a no.")
    lines += [f"To {name}:\n{command}" for name, command in item["commands"].items()]
    return "\n\n".join(lines) + "\n"


def signature(secret: str, body: bytes, at: int) -> Mapping[str, str]:
    """The header by which the receiver knows that we sent it, and when: `t=<unix time>,v1=<hex>`, where the hex is the
    HMAC-SHA256 of `<unix time>.<body>` under the shared key."""
    found = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Perdure-Signature": f"t={at},v1={found}"}


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """The URL is a secret: no message, cause or context of an error holds it."""
    if not url.startswith(("http://", "https://")):
        raise ToolError("its credential is not an http or https URL")
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as client:
            response = await client.post(url, content=body, headers={**headers, "Content-Type": "application/json"})
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL):
        status = 0
    if 400 <= status < 500 and status not in (408, 429):
        raise ToolError(f"the webhook refused it with status {status}")
    if not 200 <= status < 300:
        raise ConnectionError("the webhook gave no answer that counts")


def earlier_attempts() -> tuple[list[int], list[str]]:
    """Which notices are done with, and which of them could not be told."""
    done, failed = ([decode_json(each) for each in activity.info().heartbeat_details] + [[], []])[:2]
    done, failed = (each if isinstance(each, list) else [] for each in (done, failed))
    return [index for index in done if isinstance(index, int)], [text for text in failed if isinstance(text, str)]


def _name(notice: Notice) -> str:
    return f"webhook {notice.webhook}" if notice.webhook is not None else "e-mail"
