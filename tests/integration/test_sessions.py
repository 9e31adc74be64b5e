"""Handoffs: a new session begins from the goal and an artifact, and loses nothing that people or tools did."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, call, say, until

WRITE = [{"tool": "write_file", "decision": "allow"}]
LONG = "A long line of a report. " * 40


def model(name: str, tokens: int) -> list[dict[str, Any]]:
    return [{"model": name, "context_tokens": tokens}]


def writes(count: int) -> list[dict[str, Any]]:
    return [call("write_file", f"Step {n}", path=f"{n}.txt", content=LONG) for n in range(count)]


async def test_a_full_context_is_handed_over_and_the_next_session_finishes(stack: Stack, client: Client) -> None:
    stack.script("long", *writes(8), say("All written."))
    stack.bundle("long", ["write_file"], policy=WRITE, model=model("long", 1800))
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write eight files", "bundle": "long", "inputs": {"colour": "blue"}})
        handle = client.get_workflow_handle(run)
        result = await handle.result()
        handed, status = await handle.query("handoff"), await handle.query("status")
    assert result["status"] == "completed", result
    assert (result["turns"], len(result["artifacts"])) == (9, 8)
    assert result["sessions"] == status["session"] >= 2
    artifact = _stored(stack, handed["key"])
    assert artifact["facts"]["session"] == result["sessions"] - 1
    assert {effect["status"] for effect in artifact["facts"]["effects"]} == {"COMMITTED"}
    assert len(artifact["facts"]["artifacts"]) == len(artifact["facts"]["effects"]) >= 2
    assert artifact["judgement"]["next_steps"] == ["next_steps of the session"]
    assert stack.requests("long") == {str(number): 1 for number in range(9)}
    assert set(stack.requests("long/handoff").values()) == {1}
    first = _beginning(stack, artifact["base"])
    assert [message["role"] for message in first] == ["user", "user"]
    assert '"colour": "blue"' in first[0]["text"]
    assert not stack.model or stack.model.stats()["refused"] == []


async def test_a_handoff_by_message_keeps_what_people_said(stack: Stack, client: Client) -> None:
    stack.script("asked", say("one"), {**say("two"), "expect": "remember the colour"}, say("three"))
    stack.bundle("asked", [])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "talk", "bundle": "asked", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: _waits_for(handle, "message"), what="the first answer")
        assert await handle.query("handoff") is None
        yes = await stack.send("update", run, "handoff", {"by": "alice"})
        assert yes.returncode == 0, yes.stderr
        await handle.signal("message", {"text": "remember the colour", "by": "alice"})
        await until(lambda: _session(handle, 2), what="the second session")
        await handle.execute_update("finish", {"by": "alice"})
        result = await handle.result()
        handed = await handle.query("handoff")
    assert (result["sessions"], result["output"], result["usage"]["requests"]) == (2, "two", 3)
    assert (handed["by"], handed["mode"]) == ("alice", "reset")


async def test_compaction_keeps_the_first_message_and_the_calls_with_their_answers(
    stack: Stack, client: Client
) -> None:
    stack.script("compact", *writes(8), say("All written."))
    stack.bundle(
        "compact",
        ["write_file"],
        policy=WRITE,
        model=model("compact", 1800),
        session={"boundary": "compact", "at": 0.8},
    )
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write eight files", "bundle": "compact"})
        handle = client.get_workflow_handle(run)
        result = await handle.result()
        handed = await handle.query("handoff")
    assert result["status"] == "completed", result
    assert (result["turns"], len(result["artifacts"]), handed["mode"]) == (9, 8, "compact")
    first = _beginning(stack, _stored(stack, handed["key"])["base"])
    assert first[0]["text"] == "write eight files"
    assert "summary of the session" in first[1]["text"]
    assert [message["role"] for message in first[2:4]] == ["assistant", "tool"]
    assert stack.model is not None
    assert stack.model.stats()["refused"] == []


async def test_with_no_boundary_a_full_context_parks_the_run_until_a_handoff_is_asked_for(
    stack: Stack, client: Client
) -> None:
    stack.script("off", *writes(8), say("All written."))
    stack.bundle("off", ["write_file"], policy=WRITE, model=model("off", 1800), session={"boundary": "off"})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write eight files", "bundle": "off"})
        handle = client.get_workflow_handle(run)
        while True:
            await until(lambda: _parked_or_done(handle), 60, "the parking")
            status = await handle.query("status")
            if status["status"] == "completed":
                break
            assert status["waiting_on"] == ["message"]
            assert "handoff" in status["problem"]["remedy"]
            await handle.execute_update("handoff", {"by": "alice"})
        result = await handle.result()
    assert result["sessions"] >= 2
    assert len(result["artifacts"]) == 8


@pytest.mark.all
async def test_a_handoff_survives_a_rollover_and_a_cold_worker(stack: Stack, client: Client) -> None:
    stack.script("cold", *writes(8), say("All written."))
    stack.bundle("cold", ["write_file"], policy=WRITE, model=model("cold", 1800), limits={"history_events": 50})
    stack.serve_model()
    async with stack.worker(max_cached_workflows=0):
        run = await stack.start({"goal": "write eight files", "bundle": "cold"})
        result = await client.get_workflow_handle(run).result()
    assert result["sessions"] >= 2
    assert stack.requests("cold") == {str(number): 1 for number in range(9)}


def _stored(stack: Stack, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((stack.folder / "store" / key).read_bytes())
    return found


def _beginning(stack: Stack, base: str) -> list[dict[str, Any]]:
    folder = next(stack.folder.glob("store/threads/*/*/entries"))
    listed = json.loads((folder / base).read_bytes())["entries"]
    return [json.loads((folder / digest).read_bytes()) for digest in listed]


async def _waits_for(handle: WorkflowHandle[Any, Any], what: str) -> bool:
    return what in (await handle.query("status"))["waiting_on"]


async def _session(handle: WorkflowHandle[Any, Any], number: int) -> bool:
    return bool((await handle.query("status"))["session"] == number)


async def _parked_or_done(handle: WorkflowHandle[Any, Any]) -> bool:
    return (await handle.query("status"))["status"] in ("parked", "completed")
