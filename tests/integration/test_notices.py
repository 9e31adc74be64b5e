"""Telling people: signed webhooks, mails, reminders; who may decide. And that nothing waits for a dead notifier."""

import getpass
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError

from scripts.embedded import free_port
from tests.integration.kit import Stack, call, calls, pending, say, until

SECRET = "hmac-canary-0123456789"
SLOW = 90


class Hook(ThreadingHTTPServer):
    """A webhook that keeps what it got; it refuses the first `failures` with 503."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failures, self.got = failures, list[tuple[dict[str, str], bytes]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?token=url-canary"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.server.failures -= 1
        self.send_response(503 if self.server.failures >= 0 else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""


@contextmanager
def hook(failures: int = 0) -> Iterator[Hook]:
    server = Hook(failures)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Mailbox:
    def __init__(self) -> None:
        self.got: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        self.got.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"


async def test_webhook_and_mail_tell_of_a_request_and_remind(stack: Stack, client: Client) -> None:
    stack.script("tell", call("write_file", path="a.txt", content="x" * 5000), say("done"))
    notify = [  # nobody can be told by the first attempt, and is still told of after the second
        {"webhook": "nobody"},
        {"webhook": "ops"},
        {"email": ["alice@example.com"]},
        {"webhook": "managers", "after": "2s"},
    ]
    stack.bundle("tell", ["write_file"], approvals={"notify": notify})
    stack.serve_model()
    mailbox = Mailbox()
    mail = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    mail.start()
    with hook(failures=1) as ops, hook() as managers:
        stack.environment |= {
            "PERDURE_CREDENTIAL_OPS": ops.url,
            "PERDURE_CREDENTIAL_OPS_KEY": SECRET,
            "PERDURE_CREDENTIAL_MANAGERS": managers.url,
            "PERDURE_CREDENTIAL_MANAGERS_KEY": SECRET,
            "PERDURE_CREDENTIAL_SMTP": f"smtp://127.0.0.1:{mail.port}?from=perdure@example.com",
        }
        async with stack.worker():
            run = await stack.start({"goal": 'Write "it"\nnow', "bundle": "tell"})
            handle = client.get_workflow_handle(run)
            item = (await pending(handle, 1, SLOW))[0]
            await until(lambda: len(ops.got) == 2 and managers.got and mailbox.got, SLOW, "every notice")

            async def untold() -> Any:
                metadata = await handle.query("__temporal_workflow_metadata")
                return "PERDURE_CREDENTIAL_NOBODY" in metadata.current_details

            await until(untold, SLOW, "the remark on who could not be told")
            await handle.execute_update("deny", {"code": item["code"], "by": "a"})
            await handle.result()
            history = (await handle.fetch_history()).to_json()
    mail.stop()
    for headers, body in (*ops.got, *managers.got):
        at, _, found = headers["Perdure-Signature"].removeprefix("t=").partition(",v1=")
        assert abs(time.time() - int(at)) < 600
        wanted = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(found, wanted)
    told = json.loads(ops.got[1][1])
    assert (told["event"], told["code"], told["owner"]) == ("pending", item["code"], run)
    assert told["commands"] == item["commands"]
    assert len(ops.got[1][1]) < 6000
    assert json.loads(managers.got[0][1])["event"] == "reminder"
    assert ops.got[0][0]["Idempotency-Key"] == ops.got[1][0]["Idempotency-Key"]
    assert ops.got[0][0]["Idempotency-Key"] != managers.got[0][0]["Idempotency-Key"]
    to, message = mailbox.got[0]
    assert to == ["alice@example.com"]
    assert item["code"] in message["Subject"]
    assert item["commands"]["approve"] in " ".join(message.get_content().split("\n"))
    assert len(mailbox.got) == 1  # the retry for the webhook did not send it again
    for canary in (SECRET, "url-canary"):
        assert canary not in history


async def test_a_dead_notifier_never_blocks_the_run(stack: Stack, client: Client) -> None:
    stack.script("dead", calls(("write_file", {"path": "a", "content": ""})), say("done"))
    notify = [{"webhook": "ops"}, {"email": ["a@example.com"]}, {"webhook": "managers", "after": "1s"}]
    stack.bundle("dead", ["write_file"], approvals={"notify": notify})
    stack.serve_model()
    stack.environment |= {
        "PERDURE_CREDENTIAL_OPS": f"http://127.0.0.1:{free_port()}/",
        "PERDURE_CREDENTIAL_OPS_KEY": SECRET,
        "PERDURE_CREDENTIAL_SMTP": f"smtp://127.0.0.1:{free_port()}?from=perdure@example.com",
    }
    with hook() as managers:  # the second audience hears of it at its time, whatever keeps the first from it
        stack.environment |= {"PERDURE_CREDENTIAL_MANAGERS": managers.url, "PERDURE_CREDENTIAL_MANAGERS_KEY": SECRET}
        async with stack.worker():
            run = await stack.start({"goal": "write", "bundle": "dead"})
            handle = client.get_workflow_handle(run)
            code = (await pending(handle, 1, SLOW))[0]["code"]
            await until(lambda: managers.got, SLOW, "the reminder")
            first = (await handle.describe()).run_id
            await handle.execute_update("rollover", {"by": "ops"})

            async def tried_again() -> bool:
                described = (await handle.describe()).raw_description
                names = [each.activity_type.name for each in described.pending_activities]
                return described.workflow_execution_info.execution.run_id != first and "people.notify" in names

            await until(tried_again, SLOW, "the notice after the rollover")
            await handle.execute_update("approve", {"code": code, "by": "a"})
            assert (await handle.result())["status"] == "completed"
            assert len(managers.got) == 1
            events = (await handle.fetch_history()).events
    recalled = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
    assert recalled in [event.event_type for event in events], "it is not tried again once people have decided"


async def test_only_approvers_decide_and_not_their_own_requests(stack: Stack, client: Client) -> None:
    stack.script("who", calls(("write_file", {"path": "a", "content": ""}), ("ask_human", {"question": "?"})), say("."))
    approvals = {"approvers": ["alice", "bob"], "distinct_from_requester": True}
    stack.bundle("who", ["write_file", "ask_human"], approvals=approvals)
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "who", "by": "Alice"})
        handle = client.get_workflow_handle(run)
        items = {item["kind"]: item for item in await pending(handle, 2, SLOW)}
        code = items["approval"]["code"]
        assert '"by": "bob"' in items["approval"]["commands"]["approve"]
        for by, why in (("mallory", "approvers are: alice, bob"), ("alice", "somebody else"), ("Bob", "approvers are")):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update("approve", {"code": code, "by": by})
            assert why in str(refused.value.cause)
            await handle.signal("approve", {"code": code, "by": by})
        await handle.execute_update("answer", {"code": items["question"]["code"], "value": "x", "by": "mallory"})
        assert (await stack.shell(items["approval"]["commands"]["approve"])).returncode == 0
        result = await handle.result()
    assert [(each["decision"], each["by"]) for each in result["decisions"]] == [
        *(("rejected", "mallory"), ("rejected", "alice"), ("rejected", "Bob")),
        *(("answered", "mallory"), ("approved", "bob")),
    ]


async def test_the_requester_is_who_started_the_run_where_the_input_does_not_say(stack: Stack, client: Client) -> None:
    stack.script("own", call("write_file", path="a", content=""), say("."))
    stack.bundle("own", ["write_file"], approvals={"distinct_from_requester": True})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "own"}, None, "--identity", "caro\u0301l")
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("approve", {"code": code, "by": "Car\u00f3l"})
        assert "somebody else" in str(refused.value.cause), "whatever the spelling"
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("approve", {"code": code, "by": "caro\u0301l"})
        assert "write it composed" in str(refused.value.cause)
        for how in ("update", "signal"):
            assert (
                "approved"
                not in (await stack.send(how, run, "approve", {"code": code, "by": "car\u00f3l\u3164"})).stdout
            )
        await handle.execute_update("deny", {"code": code, "by": "Car\u00f3l"})  # who asked may take it back
        result = await handle.result()
        assert result["status"] == "completed"
        assert [each["decision"] for each in result["decisions"]] == ["rejected", "denied"]
        assert "cannot be seen" in result["decisions"][0]["reason"]
        other = client.get_workflow_handle(await stack.start({"goal": "write", "bundle": "own"}))
        code = (await pending(other, 1, SLOW))[0]["code"]
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await other.execute_update("approve", {"code": code, "by": getpass.getuser()})
        assert "somebody else" in str(refused.value.cause)
        await other.terminate()


async def test_a_bundle_with_wrong_approvals_is_refused_by_name(stack: Stack, client: Client) -> None:
    wrong: list[dict[str, Any]] = [
        {"approver": ["a"]},
        {"approvers": "alice"},
        {"notify": [{"after": "1h"}]},
        {"notify": [{"webhook": "a", "email": ["b@c"]}]},
        {"notify": [{"webhook": "https://secret.example"}]},
    ]
    async with stack.worker():
        for number, approvals in enumerate(wrong):
            stack.bundle(f"wrong{number}", [], approvals=approvals)
            run = await stack.start({"goal": "x", "bundle": f"wrong{number}"})
            with pytest.raises(WorkflowFailureError) as failure:
                await client.get_workflow_handle(run).result()
            assert "approvals" in str(failure.value.cause)
