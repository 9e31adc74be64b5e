"""Steering a run: messages, pauses, limits, questions, and what is sent before, during and after."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from tests.integration.kit import Stack, call, calls, pending, say, until
from workers.worker import WORKFLOWS
from workflows import showing

SLOW = 90


async def said_to_model(stack: Stack, run: str) -> list[str]:
    """The user messages that the store holds for a run, in the order of the last request."""
    folder = next(
        path for path in (stack.folder / "store" / "threads" / run).iterdir() if (path / "checkpoints").is_dir()
    )
    found = []
    for path in sorted((folder / "checkpoints").rglob("*.json")):
        for digest in json.loads(path.read_text())["inputs"]["entries"]:
            body = json.loads((folder / "entries" / digest).read_text())
            if body["role"] == "user":
                found.append(body["text"])
    return found


async def details(handle: WorkflowHandle[Any, Any]) -> str:
    """Current Details, as the Web UI shows them."""
    return str((await handle.query("__temporal_workflow_metadata")).current_details)


async def status(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    return dict(await handle.query("status"))


async def test_what_is_sent_before_a_worker_ever_ran_the_run_counts(stack: Stack, client: Client) -> None:
    stack.script("early", call("read_file", path="x"), say("done"))
    stack.bundle("early", ["read_file"], budget={"turns": 1, "wait": "1h"})
    stack.serve_model()
    run = await stack.start({"goal": "look", "bundle": "early"})
    handle = client.get_workflow_handle(run)
    assert (await stack.send("signal", run, "message", {"text": "first", "by": "a"})).returncode == 0
    assert (await stack.send("signal", run, "message", {"text": "second", "by": "b"})).returncode == 0
    assert (await stack.send("signal", run, "budget", {"turns": 7, "by": "a"})).returncode == 0
    assert (await stack.send("signal", run, "pause", {"by": "a", "reason": "not yet"})).returncode == 0
    assert (await stack.send("signal", run, "approve", {"code": "K7Q2", "by": "a"})).returncode == 0
    assert (await stack.send("signal", run, "approve", {"yes": True})).returncode == 0
    assert (await stack.send("signal", run, "aprove", {"code": "K7Q2", "by": "a"})).returncode == 0
    async with stack.worker():

        async def paused() -> Any:
            found = await status(handle)
            return found if found["status"] == "paused" and found["goal"] else None

        found = await until(paused, SLOW)
        assert found["budget"]["limit"]["turns"] == 7
        assert found["turn"] == 0
        log = await handle.query("decisions")
        assert [each["decision"] for each in log] == ["rejected"] * 3
        assert [(each["code"], each["by"]) for each in log] == [("K7Q2", "a"), (None, None), (None, None)]
        await handle.execute_update("resume", {"by": "a"})
        result = await handle.result()
    assert result["status"] == "completed"
    assert await said_to_model(stack, run) == ["look", "first", "second"]
    assert [each["decision"] for each in result["decisions"]] == ["rejected"] * 3


async def test_what_is_sent_during_a_rollover_meets_the_requests_it_is_for(stack: Stack, client: Client) -> None:
    """A worker that is down holds the rollover open: what arrives then is handled first by the new execution."""
    stack.script("roll", calls(*(("write_file", {"path": f"{n}", "content": "x"}) for n in "abc")), say("done"))
    stack.bundle("roll", ["write_file"])
    stack.serve_model()
    run = await stack.start({"goal": "write", "bundle": "roll"})
    handle = client.get_workflow_handle(run)
    async with stack.worker(max_cached_workflows=0):
        asked = {item["arguments"]["path"]: item["code"] for item in await pending(handle, 3, SLOW)}
        first = (await handle.describe()).run_id
    await handle.signal("rollover", {"by": "ops"})
    await handle.signal("approve", {"code": asked["a"], "by": "alice"})
    async with stack.worker(max_cached_workflows=0):

        async def rolled() -> bool:
            return (await handle.describe()).run_id != first

        sending = asyncio.create_task(_flood(handle, run, asked["b"]))
        await until(rolled, SLOW)
        await sending
        await handle.signal("deny", {"code": asked["c"], "by": "carol", "reason": "no"})
        result = await handle.result()
    log = {each["code"]: (each["decision"], each["by"]) for each in result["decisions"] if each["code"]}
    assert log[asked["a"]] == ("approved", "alice")
    assert log[asked["b"]] == ("approved", "bob")
    assert log[asked["c"]] == ("denied", "carol")
    assert {item["path"] for item in result["artifacts"]} == {"a", "b"}


async def _flood(handle: WorkflowHandle[Any, Any], run: str, code: str) -> None:
    await asyncio.sleep(0.05)
    await handle.signal("approve", {"code": code, "by": "bob"})


async def test_messages_sent_through_rollovers_are_all_read_in_order(stack: Stack, client: Client) -> None:
    """Some of them are there before the first task of a new execution: its state is taken over before them."""
    stack.script("over", call("write_file", path="a", content="x"), say("done"))
    stack.bundle("over", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "over"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
        for number in range(60):
            if number % 15 == 5:
                await handle.signal("rollover", {"by": "ops"})
            await handle.signal("message", {"text": f"m{number}", "by": "a"})
        await handle.execute_update("approve", {"code": code, "by": "alice"})
        result = await handle.result()
    assert await said_to_model(stack, run) == ["write", *(f"m{number}" for number in range(60))]
    assert [(each["decision"], each["by"]) for each in result["decisions"]] == [("approved", "alice")]


async def test_questions_take_texts_choices_and_typed_answers(stack: Stack, client: Client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    asked = (
        ("ask_human", {"question": "Which colour?"}),
        ("ask_human", {"question": "Which size?", "choices": ["S", 'M\'s "best"']}),
        ("ask_human", {"question": "How many?", "schema": schema}),
        ("ask_human", {"question": "Never?"}),
        ("ask_human", {"question": "Long?", "choices": ["x" * 20_000]}),
        ("ask_human", {"question": "Broken?", "schema": {"type": "strange"}}),
    )
    stack.script("asks", calls(*asked), say("done"))
    stack.bundle("asks", ["ask_human"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "ask", "bundle": "asks"})
        handle = client.get_workflow_handle(run)
        codes = {item["question"]: item["code"] for item in await pending(handle, 4, SLOW)}
        for question, value in (("Which size?", "L"), ("How many?", {"n": 2}), ("How many?", "3"), ("Which size?", 5)):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update("answer", {"code": codes[question], "value": value, "by": "a"})
            assert "stays open" in str(refused.value.cause)
        for question, value in (("Which colour?", '日本 "red"\n'), ("Which size?", "S"), ("How many?", {"n": 3})):
            await handle.execute_update("answer", {"code": codes[question], "value": value, "by": "a"})
        await handle.execute_update("deny", {"code": codes["Never?"], "by": "a", "reason": "not your business"})
        result = await handle.result()
        answers = (await handle.query("transcript"))[0]["answers"]
    assert "red" in answers["1.0"]
    assert answers["1.1"] == "S"
    assert json.loads(answers["1.2"]) == {"n": 3}
    assert "not your business" in answers["1.3"]
    assert "16384 bytes at most. It was not asked" in answers["1.4"]
    assert "no JSON Schema" in answers["1.5"]
    assert [each["decision"] for each in result["decisions"] if each["decision"] != "rejected"] == [
        *(["answered"] * 3),
        "denied",
    ]


async def test_a_pause_holds_the_next_tool_and_turn_and_messages_keep_their_order(stack: Stack, client: Client) -> None:
    stack.script("pause", call("write_file", path="a", content="a"), say("done"), say("done again"))
    stack.bundle("pause", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "pause"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
        for number in range(5):
            how = "update" if number % 2 else "signal"
            assert (await stack.send(how, run, "message", {"text": f"m{number}", "by": "a"})).returncode == 0
        assert (await handle.execute_update("pause", {"by": "boss", "reason": "wait"}))["status"] == "paused"
        await handle.execute_update("approve", {"code": code, "by": "a"})
        await asyncio.sleep(1)
        found = await status(handle)
        assert found["status"] == "paused"
        assert await handle.query("effects") == []  # approved, and still held
        assert "boss: wait" in await details(handle)
        await handle.execute_update("resume", {"by": "boss"})
        result = await handle.result()
    assert result["output"] == "done"
    assert await said_to_model(stack, run) == ["write", "m0", "m1", "m2", "m3", "m4"]


async def test_a_reached_limit_waits_for_more_and_a_pause_meanwhile_holds(stack: Stack, client: Client) -> None:
    stack.script("limit", call("read_file", path="a"), call("read_file", path="b"), say("done"))
    stack.bundle("limit", ["read_file"], budget={"turns": 1})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "read", "bundle": "limit"})
        handle = client.get_workflow_handle(run)
        item = (await pending(handle, 1, SLOW))[0]
        assert (item["kind"], list(item["commands"])) == ("budget", ["raise"])
        assert (await status(handle))["waiting_on"] == ["budget"]
        await handle.execute_update("pause", {"by": "boss"})
        done = await stack.shell(item["commands"]["raise"])
        assert done.returncode == 0, done.stderr
        await asyncio.sleep(1)
        assert ((await status(handle))["turn"], (await status(handle))["status"]) == (1, "paused")
        await handle.execute_update("resume", {"by": "boss"})
        again = await pending(handle, 1, SLOW)
        assert again[0]["code"] != item["code"]
        await handle.execute_update("budget", {"turns": 9, "by": "a"})
        result = await handle.result()
    assert (result["status"], result["turns"]) == ("completed", 3)
    assert [each["decision"] for each in result["decisions"]] == ["resolved", "resolved"]


async def test_an_interactive_run_waits_for_messages_until_it_is_finished(stack: Stack, client: Client) -> None:
    stack.script("chat", say("one"), say("two"))
    stack.bundle("chat", [])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "hello", "bundle": "chat", "interactive": True})
        handle = client.get_workflow_handle(run)

        async def idle() -> Any:
            return (await status(handle))["waiting_on"] == ["message"]

        await until(idle, SLOW)
        await handle.execute_update("rollover", {"by": "ops"})
        await handle.execute_update("message", {"text": "and?", "by": "a"})
        await until(lambda: _turn(handle, 2), SLOW)
        await until(idle, SLOW)
        assert (await stack.send("update", run, "finish", {"by": "a"})).returncode == 0
        result = await handle.result()
        with pytest.raises(RPCError, match="already completed"):
            await handle.signal("message", {"text": "too late", "by": "a"})
    assert (result["status"], result["output"], result["turns"]) == ("completed", "two", 2)
    assert await said_to_model(stack, run) == ["hello", "and?"]


async def _turn(handle: WorkflowHandle[Any, Any], number: int) -> bool:
    return int((await status(handle))["turn"]) >= number


async def test_a_message_that_nobody_will_read_is_recorded(stack: Stack, client: Client) -> None:
    """The run ends for another reason while a message waits to be read."""
    stack.script("unread", call("write_file", path="a", content="a"), say("never"))
    stack.bundle("unread", ["write_file"], limits={"denials": 1})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "unread"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
        await handle.execute_update("message", {"text": "hello?", "by": "zoe"})
        await handle.execute_update("deny", {"code": code, "by": "a"})
        result = await handle.result()
    assert result["status"] == "denied"
    assert [(each["decision"], each["by"]) for each in result["decisions"]] == [("denied", "a"), ("rejected", "zoe")]
    assert "before it was read" in result["decisions"][1]["reason"]


async def test_a_flood_of_signals_that_cannot_be_used_is_shown_once_and_leaves_the_good_one_its_effect(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them come to one workflow task, and the SDK fails a task that takes 2 s."""
    stack.script("flood", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("flood", ["write_file"])
    stack.serve_model()
    async with stack.worker(max_cached_workflows=0):
        run = await stack.start({"goal": "write", "bundle": "flood"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
    for _ in range(8):  # while no worker is there
        await asyncio.gather(*(handle.signal("approve", {"code": "ZZZZ", "by": "mallory"}) for _ in range(50)))
    await handle.signal("approve", {"code": code, "by": "alice"})
    async with stack.worker():
        result = await asyncio.wait_for(handle.result(), SLOW)
    assert result["status"] == "completed"
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]
    assert Counter(each["decision"] for each in result["decisions"])["approved"] == 1
    drawn: list[str] = []

    def draw(_: Any, workflow_id: str, status: str) -> str:
        drawn.append(status)
        return workflow_id

    monkeypatch.setattr(showing, "details", draw)
    replayer = Replayer(
        workflows=WORKFLOWS, data_converter=stack.converter(worker=True), workflow_runner=UnsandboxedWorkflowRunner()
    )
    await replayer.replay_workflow(await handle.fetch_history())
    assert 0 < len(drawn) < 50
