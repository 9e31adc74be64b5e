"""Moving a run to another version of its bundle: by message, at the next session, on record."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError

from activities import handoff
from activities.judgement import judge_session
from tests.integration.kit import Stack, call, pending, say, until


async def waits(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def session(handle: WorkflowHandle[Any, Any], number: int) -> bool:
    return bool((await handle.query("status"))["session"] == number)


async def test_an_upgrade_takes_hold_at_the_next_session_and_is_on_record(stack: Stack, client: Client) -> None:
    stack.environment["PERDURE_TOOLS"] = "tests.integration.upgrade_tools"
    stack.script("old", say("one"), say("still the old one"))
    write = {**call("write_file", path="b", content="b"), "expect": "and on"}
    stack.script("new", say("-"), say("-"), write, say("the new one"))  # turns 1 and 2 are the old session's
    stack.bundle("moving", [], model=[{"model": "old"}], budget={"turns": 50, "tool_calls": 9})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "g", "bundle": "moving", "interactive": True, "budget": {"tool_calls": 3}})
        handle = client.get_workflow_handle(run)
        await until(lambda: waits(handle), what="the first answer")
        await handle.execute_update("budget", {"turns": 40, "by": "ann"})
        stack.bundle(
            "moving",
            ["write_file"],
            version="2",
            model=[{"model": "new"}],
            versions={"state_schema": "2"},
            budget={"turns": 60, "tool_calls": 5, "tokens": 9_000_000},
            limits={"denials": 2},
        )
        sent = await stack.send("update", run, "upgrade", {"bundle": "moving@2", "by": "ann"})
        assert sent.returncode == 0, sent.stderr
        await handle.signal("message", {"text": "go on", "by": "ann"})
        await until(lambda: _turns(handle, 2), what="the second answer")
        before = await handle.query("status")
        assert (before["bundle"], before["upgrade"], before["turn"]) == ("moving@1", "moving@2", 2)
        await handle.execute_update("handoff", {"by": "ann"})
        await handle.signal("message", {"text": "and on", "by": "ann"})
        request = (await pending(handle))[0]
        assert request["tool"] == "write_file"
        status, handed = await handle.query("status"), await handle.query("handoff")
        await handle.execute_update("approve", {"code": request["code"], "by": "ann"})
        await until(lambda: waits(handle), what="the answer of the new bundle")
        await handle.execute_update("finish", {"by": "ann"})
        result = await handle.result()
    assert (status["bundle"], status["upgrade"], status["session"]) == ("moving@2", None, 2)
    limits = {"turns": 40, "tokens": 9_000_000, "tool_calls": 3}
    assert status["budget"]["limit"] == limits, "what people chose stands, the rest is the new bundle's"
    assert handed["judgement"] == {
        "plan": ["to_do of the session", "next_steps of the session"],
        "done": ["done of the session"],
    }
    assert (handed["upgrade"]["from"], handed["upgrade"]["version"]) == ("moving@1", "2")
    assert (result["output"], result["versions"]["bundle"]) == ("the new one", "moving@2")
    assert (result["versions"]["state_schema"], result["versions"]["bundle_digest"]) == (
        "2",
        handed["upgrade"]["digest"],
    )
    assert result["decisions"][0]["decision"] == "upgrade"


async def _turns(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    status = await handle.query("status")
    return bool(status["turn"] == count and "message" in status["waiting_on"])


async def test_an_upgrade_that_cannot_be_is_refused_by_name(stack: Stack, client: Client) -> None:
    stack.script("kept", say("one"))
    stack.bundle("kept", [])
    stack.bundle("kept", [], version="3", versions={"state_schema": "2"})
    stack.bundle("kept", ["no_such_tool"], version="4")
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "g", "bundle": "kept@1", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: waits(handle), what="the first answer")
        for bundle, said in (
            ("kept@2", "there are: kept@1, kept@3"),
            ("kept@1", "on kept@1 already"),
            ("assistant@1", "fork the run"),
            ("kept@3", "no migration"),
            ("kept@4", "no_such_tool"),
        ):
            refused = await stack.send("update", run, "upgrade", {"bundle": bundle, "by": "ann"})
            assert said in refused.stderr, (bundle, refused.stderr)
        await handle.signal("upgrade", {"bundle": "kept@2", "by": "ann"})
        await until(lambda: _rejected(handle), what="the refused signal on record")
        await handle.execute_update("finish", {"by": "ann"})
        assert (await handle.result())["versions"]["bundle"] == "kept@1"


async def _rejected(handle: WorkflowHandle[Any, Any]) -> bool:
    log = await handle.query("decisions")
    return any(one["decision"] == "rejected" and "kept@2" in one["reason"] for one in log[-1:])


async def test_an_upgrade_that_comes_while_a_session_is_handed_over_waits_for_the_next(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.script("shop", *[say(f"answer {number}") for number in range(9)])
    for version, turns in (("1", 50), ("2", 60), ("4", 70)):
        stack.bundle("shop", [], version=version, budget={"turns": turns, "tool_calls": turns})
    stack.serve_model()
    asked, go = asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> Any:
        asked.set()
        await go.wait()
        return await judge_session(*arguments)

    monkeypatch.setattr(handoff, "judge_session", held)
    async with stack.worker():
        value = {"goal": "g", "bundle": "shop@1", "interactive": True, "budget": {"turns": 50}}
        handle = client.get_workflow_handle(await stack.start(value))
        await until(lambda: waits(handle), what="the first answer")
        await upgrade(handle, "shop@2")
        taken_back = await upgrade(handle, "shop@1")
        status = await handle.query("status")
        assert (taken_back["status"], status["upgrade"]) == ("it stays on shop@1", None)
        await upgrade(handle, "shop@2")
        await handle.execute_update("budget", {"tool_calls": 50, "by": "ann"})
        await handle.execute_update("handoff", {"by": "ann"})
        await handle.execute_update("message", {"text": "go on", "by": "ann"})
        await asked.wait()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await upgrade(handle, "shop@1")
        assert "is being handed over" in str(refused.value.cause)
        await upgrade(handle, "shop@4")
        go.set()
        await until(lambda: _turns(handle, 2), what="the second session's answer")
        second = await handle.query("status")
        await handle.execute_update("handoff", {"by": "ann"})
        await handle.execute_update("message", {"text": "and on", "by": "ann"})
        await until(lambda: _turns(handle, 3), what="the third session's answer")
        third = await handle.query("status")
        await handle.execute_update("finish", {"by": "ann"})
        result = await handle.result()
    assert (second["bundle"], second["upgrade"]) == ("shop@2", "shop@4")
    assert (third["bundle"], third["upgrade"]) == ("shop@4", None)
    assert result["versions"]["bundle"] == "shop@4"
    chosen = {"turns": 50, "tool_calls": 50}
    assert second["budget"]["limit"] == third["budget"]["limit"] == chosen, "what was chosen stays, equal or not"


async def upgrade(handle: WorkflowHandle[Any, Any], bundle: str) -> dict[str, Any]:
    answer: dict[str, Any] = await handle.execute_update("upgrade", {"bundle": bundle, "by": "ann"})
    return answer
