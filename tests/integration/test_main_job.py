"""From `temporal workflow start` to a result."""

import json
from typing import Any

from temporalio.client import Client

from tests.integration.kit import Stack, call, pending, say


async def test_a_goal_becomes_a_result(stack: Stack, client: Client) -> None:
    stack.script("plain", call("list_files", "I look first.", path="."), say("There is nothing here."))
    stack.bundle("plain", ["list_files"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": 'Look around: "it\'s", 日本, 🙂\nand more', "bundle": "plain"})
        result = await client.get_workflow_handle(run).result()
    assert result["status"] == "completed"
    assert result["output"] == "There is nothing here."
    assert (result["turns"], result["sessions"], result["usage"]["requests"]) == (2, 1, 2)
    assert stack.requests("plain") == {"0": 1, "1": 1}


async def test_calls_of_one_turn_run_together_and_are_answered_once_in_order(stack: Stack, client: Client) -> None:
    stack.script(
        "parallel",
        {
            "calls": [
                {"tool": "write_file", "arguments": {"path": "a.txt", "content": "A"}},
                {"tool": "no_such_tool", "unoffered": True},
                {"tool": "write_file", "arguments": {"path": "b.txt", "content": "B"}},
                {"tool": "read_file", "arguments": {"path": "missing.txt"}},
            ]
        },
        say("done"),
    )
    stack.bundle("parallel", ["write_file", "read_file"], policy=[{"tool": "write_file", "decision": "allow"}])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "parallel"})
        result = await client.get_workflow_handle(run).result()
        transcript = await client.get_workflow_handle(run).query("transcript")
    assert result["status"] == "completed"
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED", "COMMITTED"]
    assert {item["path"] for item in result["artifacts"]} == {"a.txt", "b.txt"}
    assert "no_such_tool" in transcript[0]["answers"]["1.1"]


async def test_an_approval_by_update_runs_the_call_and_a_denial_does_not(stack: Stack, client: Client) -> None:
    stack.script(
        "ask",
        call("write_file", path="a.txt", content="A"),
        call("write_file", path="b.txt", content="B"),
        say("done"),
    )
    stack.bundle("ask", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "ask"})
        handle = client.get_workflow_handle(run)
        first = (await pending(handle))[0]
        assert first["arguments"] == {"path": "a.txt", "content": "A"}
        yes = await stack.send("update", run, "approve", {"code": first["code"], "by": "alice"})
        assert yes.returncode == 0, yes.stderr
        second = await _next(handle, first["code"])
        no = await stack.send("signal", run, "deny", {"code": second["code"], "by": "bob", "reason": "no b"})
        assert no.returncode == 0, no.stderr
        result = await handle.result()
        decisions = await handle.query("decisions")
    assert [item["path"] for item in result["artifacts"]] == ["a.txt"]
    assert [(each["decision"], each["by"]) for each in decisions] == [("approved", "alice"), ("denied", "bob")]
    assert decisions[0]["source"]["via"] == "update"
    assert json.loads(result["effects"][0]["result"])["path"] == "a.txt"


async def _next(handle: Any, code: str) -> dict[str, Any]:
    while True:
        found = [each for each in await pending(handle) if each["code"] != code]
        if found:
            return dict(found[0])
