"""What a path that a reset left did and was told: none of it is forgotten, or taken for something else."""

import asyncio
import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities.checkpoints import now_iso
from activities.effect_records import Outcome
from activities.ledger import Ledger
from activities.store import open_store
from tests.integration.effects.crashes import CRASHING, bundle, effects_stack
from tests.integration.effects.test_past import approve, replay_script
from tests.integration.kit import Stack, call, pending, say, until
from workflows.keys import undo_id
from workflows.records import Ref

TURN = "model.turn"


async def turn_taken(handle: WorkflowHandle[Any, Any]) -> int:
    """The event to reset to for a run that is to stand just after its first turn."""
    events = (await handle.fetch_history()).events
    turn = next(e.event_id for e in events if e.activity_task_scheduled_event_attributes.activity_type.name == TURN)
    done = next(e for e in events if e.activity_task_completed_event_attributes.scheduled_event_id == turn)
    after = (e for e in events if e.event_id > done.event_id)
    return next(e.event_id for e in after if e.HasField("workflow_task_completed_event_attributes"))


async def test_an_effect_whose_call_is_refused_after_a_reset_is_not_forgotten(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        rules = [{"tool": "*", "decision": "ask"}]
        bundle(stack, "late", call("keyed", label="x"), say("done"), policy=rules)
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "late"})
            handle = client.get_workflow_handle(run)
            await approve(stack, handle, run)
            made = (await handle.result())["effects"][0]["operation_id"]
            point = ("--event-id", str(await turn_taken(handle)), "--reapply-exclude", "All")
            done = await stack.temporal("workflow", "reset", "-w", run, "--reason", "a test", *point)
            assert done.returncode == 0, done.stderr
            replay_script(stack, "late", call("keyed", label="x"), call("keyed", label="x"), say("done"))
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=90))[0]
            assert f"{made} (COMMITTED" in asked["question"]
            await stack.send("update", run, "deny", {"code": asked["code"], "by": "alice"})
            result = await handle.result()
            assert (dict(outside.effects), result["decisions"][-1]["decision"]) == ({"x": 1}, "denied")
        entries = (stack.folder / "store").rglob("entries/*")
        told = [text for path in entries if "alice denied" in (text := path.read_text())]
    assert [f"before this run was set back it made or began it as {made}" in text for text in told] == [True]
    assert [(each["operation_id"], each["abandoned"]) for each in result["effects"]] == [(made, True)]


@pytest.mark.all
async def test_a_word_about_an_operation_does_not_commit_the_one_that_is_made_anew(
    stack: Stack, client: Client
) -> None:
    """The worker dies between the person's "it happened" and the report of it, and the effect is undone meanwhile: that
    is put on record by hand, before, so that no clock decides."""
    async with effects_stack(stack) as outside:
        bundle(stack, "word", call("reviewed", label="x"), say("done"))
        stack.serve_model()
        mark = stack.folder / "mark"
        crash = {"CRASH_AT": "after:reviewed_1/outcome[.]json", "CRASH_MARK": str(mark)}
        for _ in range(2):
            stack.start_worker(module=CRASHING, **crash)
        outside.hold["x"] = 9.0
        run = await stack.start({"goal": "act", "bundle": "word"})
        handle = client.get_workflow_handle(run)
        asked = (await pending(handle, seconds=90))[0]
        await until(lambda: outside.effects["x"] == 1, 60)
        await put_undone(Ledger(open_store(stack.environment["PERDURE_STORE"])), asked["operation_id"])
        word = {"code": asked["code"], "outcome": "happened", "result": {"id": "x-1"}, "by": "alice"}
        await stack.send("signal", run, "resolve", word)
        await until(mark.exists, 60)
        anew = await until(lambda: _approval(handle), 120)
        assert anew["operation_id"].startswith(f"{asked['operation_id']}~")
        assert "undone since" in anew["question"]
        before = outside.requests["x"]
        await stack.send("update", run, "approve", {"code": anew["code"], "by": "alice"})
        result = await asyncio.wait_for(handle.result(), 90)
        assert outside.requests["x"] - before == 1
    made = next(each for each in result["effects"] if "~" in each["operation_id"])
    assert (made["status"], made["external_id"]) == ("COMMITTED", "x-2")


async def put_undone(ledger: Ledger, operation: str) -> None:
    """Puts on record that an operation was undone."""
    thread, answer = operation.split(":")[0], Ref(sha256="0", bytes=0)
    held = await ledger.prepared(thread, operation)
    assert held is not None
    undo = undo_id(operation)
    await ledger.prepare(thread, held.model_copy(update={"operation_id": undo, "undoes": operation}))
    done = Outcome(operation_id=undo, status="COMMITTED", how="executed", answer=answer, committed_at=now_iso())
    await ledger.finish(thread, done)


async def _approval(handle: WorkflowHandle[Any, Any]) -> dict[str, Any] | None:
    try:
        found = await asyncio.wait_for(handle.query("pending"), 5)
    except Exception:  # noqa: BLE001 - no worker is there to answer just now
        return None
    return next((each for each in found if each["kind"] == "approval"), None)


@pytest.mark.all
async def test_a_compensate_of_all_that_a_reset_sends_again_undoes_nothing_made_after_it(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        turns = (call("looked", label="a"), say("one"), call("reviewed", label="c"), say("two"))
        bundle(stack, "again", *turns, say("bye"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "again", "interactive": True})
            handle = client.get_workflow_handle(run)
            await until(lambda: _idle(handle), 90)
            await stack.send("signal", run, "compensate", {"by": "alice"})
            await until(lambda: outside.undone["a"] == 1, 60)
            await stack.send("signal", run, "message", {"text": "go on", "by": "alice"})
            await until(lambda: outside.effects["c"] == 1, 60)
            await until(lambda: _idle(handle), 90)
            point = ("--event-id", str(await turn_taken(handle)))
            done = await stack.temporal("workflow", "reset", "-w", run, "--reason", "a test", *point)
            assert done.returncode == 0, done.stderr
            handle = client.get_workflow_handle(run)
            rejected = await until(lambda: _rejected(handle), 90)
            assert ":reviewed:1" in rejected["reason"]
            assert dict(outside.undone) == {"a": 1}
            line = rejected["reason"][rejected["reason"].index("temporal ") :]
            done = await stack.shell(line)
            assert done.returncode == 0, f"{line}: {done.stderr}"
            await until(lambda: outside.undone["c"] == 1, 90)
            await handle.terminate()
            stack.runs.clear()


async def _idle(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def _rejected(handle: WorkflowHandle[Any, Any]) -> dict[str, Any] | None:
    return next((each for each in await handle.query("decisions") if each["decision"] == "rejected"), None)


@pytest.mark.all
@pytest.mark.parametrize("word", ["happened", "not_happened"])
async def test_an_effect_that_was_left_in_doubt_is_ended_by_a_person_and_not_made_any_more(
    stack: Stack, client: Client, word: str
) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "left", call("reviewed", label="d"), say("done"))
        stack.serve_model()
        outside.hold["d"] = 10.0  # past the tool's deadline
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "left", "interactive": True})
            handle = client.get_workflow_handle(run)
            before = (await pending(handle, seconds=90))[0]
            await until(lambda: outside.effects["d"] == 1, 60)
            replay_script(stack, "left", say("done"))
            point = ("-t", "FirstWorkflowTask", "--reapply-exclude", "All")
            done = await stack.temporal("workflow", "reset", "-w", run, "--reason", "a test", *point)
            assert done.returncode == 0, done.stderr
            handle = client.get_workflow_handle(run)
            await until(lambda: _idle(handle), 90)
            (line,) = json.loads((await stack.shell("perdure effects --in-doubt --json")).stdout)
            done = await stack.shell(line["resolve"]["ask"].replace("YOUR-NAME", "alice"))
            assert done.returncode == 0, done.stderr
            asked = (await pending(handle, seconds=90))[0]
            assert (asked["kind"], asked["operation_id"]) == ("review", before["operation_id"])
            given = {"result": {"id": "d-1"}} if word == "happened" else {}
            said = {"code": asked["code"], "outcome": word, "by": "alice", **given}
            done = await stack.send("update", run, "resolve", said)
            assert done.returncode == 0, done.stderr
            await until(lambda: _settled(handle), 90)
            await stack.send("update", run, "finish", {"by": "alice"})
            result = await handle.result()
            assert (await stack.shell("perdure effects --in-doubt")).returncode == 0
        assert (outside.requests["d"], outside.undone["d"]) == (1, word == "happened")
    status = {each["operation_id"]: each["status"] for each in result["effects"]}
    assert status[before["operation_id"]] == ("COMPENSATED" if word == "happened" else "NOT_EXECUTED")


async def _settled(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether nothing of the operation is open any more."""
    effects = await handle.query("effects")
    return any(each["status"] in ("COMPENSATED", "NOT_EXECUTED") for each in effects)
