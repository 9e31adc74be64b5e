"""What a person sees of a run's state, its files and the memory across runs, with the commands alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, call, say, until

pytestmark = pytest.mark.all
ALLOW = [{"tool": "*", "decision": "allow"}]
FACT = "billing goes to Ann"


async def test_records_files_handoff_and_memory_are_what_they_say(stack: Stack, client: Client) -> None:
    stack.script(
        "first",
        call("write_file", "the secret words", path="notes/a.txt", content="one\n"),
        call("remember", scope="acme", key="billing", value=FACT),
        say("done"),
        say("no"),
    )
    stack.script("second", call("recall", scope="acme", key="billing"), {**say("known"), "expect": FACT})
    stack.script(
        "third", call("recall", scope="other", key="billing"), {**say("unknown"), "expect": "Nothing is remem"}
    )
    for name in ("first", "second", "third"):
        stack.bundle(name, ["write_file", "remember", "recall"], policy=ALLOW)
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "the secret goal", "bundle": "first", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: waits(handle), what="the first answer")
        assert await handle.query("handoff") is None
        assert (await stack.send("update", run, "handoff", {"by": "ann"})).returncode == 0
        await handle.signal("message", {"text": "anything else?", "by": "ann"})
        await until(lambda: answered(handle), what="the second answer")
        await handle.signal("finish", {"by": "ann"})
        result = await handle.result()
        told = await stack.temporal("workflow", "query", "-w", run, "--type", "handoff")
        assert (told.returncode, result["output"], result["sessions"]) == (0, "no", 2)
        for bundle in ("second", "third"):
            other = await stack.start({"goal": "ask", "bundle": bundle})
            assert (await client.get_workflow_handle(other).result())["status"] == "completed"
    [handed] = json.loads(told.stdout)["queryResult"]
    assert (handed["by"], handed["session"]) == ("ann", 1)

    listed = await stack.shell(f"perdure checkpoints {run} --json")
    lines = json.loads(listed.stdout)["checkpoints"]
    assert [line["sequence"] for line in lines] == list(range(result["turns"] + 1))
    assert {(line["schema"], line["state"]) for line in lines} == {(1, "ok")}
    assert lines[-1]["sha256"] == result["checkpoint"]["sha256"]
    table = await stack.shell(f"perdure checkpoints {run}; perdure verify {run}")
    assert (table.returncode, "0 faults" in table.stdout) == (0, True), table.stdout
    assert "secret" not in listed.stdout + table.stdout

    files = json.loads((await stack.shell(f"perdure files {run} --json")).stdout)["files"]
    assert files == result["artifacts"]
    assert [file["path"] for file in files] == ["notes/a.txt"]
    assert (await stack.shell(f"perdure files {run} notes/a.txt")).stdout == "one\n"
    none = await stack.shell(f"perdure files {run} notes/b.txt || echo code $?")
    assert ("code 1" in none.stdout, "notes/b.txt" in none.stderr) == (True, True)

    store = stack.folder / "store"
    assert [path for path in store.glob("memory/acme/billing/*.json") if FACT.encode() in _read(path)]
    [entry] = [path for path in store.rglob("entries/*") if b"the secret goal" in _read(path)]
    entry.write_bytes(b"{}")
    wrong = await stack.shell(f"perdure verify {run} || echo code $?")
    assert "code 1" in wrong.stdout
    assert entry.name in wrong.stdout


async def waits(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def answered(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool((await handle.query("status"))["turn"] >= 4) and await waits(handle)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
