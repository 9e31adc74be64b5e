"""Credentials that a model server, a tool or an error echoes: nowhere in what outlives the moment."""

import zlib
from typing import Any

from temporalio.client import Client

from activities.store import open_store
from tests.faults.kit import Case, begin, finish, serve
from tests.faults.plays import ask, json_body, say
from tests.integration.collector import collector
from tests.integration.kit import Stack

KEY, TOKEN = "sk-canary-of-the-model-server", "canary-of-the-crm"
LEAKS = ["leak_result", "leak_bytes", "leak_refusal", "leak_error", "leak_failure", "leak_log"]
CONTENT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}


async def test_no_credential_is_in_history_store_queries_logs_or_telemetry(stack: Stack, client: Client) -> None:
    stack.environment |= {
        "OPENAI_API_KEY": KEY,
        "PERDURE_CREDENTIAL_CRM": TOKEN,
        "PERDURE_TOOLS": "tests.integration.leaking_tools",
    }
    echo = ("write_file", {"path": "note.txt", "content": f"{KEY} and {TOKEN}"})
    leaks = Case([ask(*((tool, {}) for tool in LEAKS), echo, text=f"I was told {KEY}."), say(f"Use {TOKEN}, {KEY}.")])
    leaks.tools = [*LEAKS, "write_file"]
    refused = Case([json_body({"error": {"message": f"Incorrect API key provided: {KEY}", "code": "bad"}}, 401)])
    with collector() as sink, serve(stack, leaks=leaks, refused=refused):
        seen: list[bytes] = []
        sink.see = seen.append
        worker = stack.start_worker(**sink.environment, **CONTENT)
        handles = [await begin(stack, client, leaks), await begin(stack, client, refused)]
        for handle, case in zip(handles, (leaks, refused), strict=True):
            await finish(handle, case)
            queries: dict[str, Any] = {
                name: await handle.query(name) for name in ("status", "transcript", "effects", "decisions", "pending")
            }
            seen += [str(queries).encode(), (await handle.describe()).raw_description.SerializeToString()]
            seen += [event.SerializeToString() for event in (await handle.fetch_history()).events]
        worker.terminate()
        worker.wait()
    seen += [path.read_bytes() for path in stack.folder.glob("worker-*.log")]
    store = open_store(stack.environment["PERDURE_STORE"])
    stored = {key: await store.get(key) or b"" for key in await store.keys("")}
    seen += [zlib.decompress(data) if "/segments/" in key else data for key, data in stored.items()]
    assert (leaks.ended, refused.ended) == ("completed", "ModelRequestRejected")
    assert len(leaks.asked) == 2
    assert sink.spans
    for canary in (KEY, TOKEN):
        assert not [where for where in seen if canary.encode() in where], canary
    told = str(leaks.asked[1].body)
    assert told.count("[redacted]") >= 4, "and the model was told that something was left out"
