"""The message `edit`: a run that stands still goes on from another context, and nothing that was is lost."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import replay_script, reset
from tests.integration.kit import Stack, call, pending, say, until

ASKED = [{"tool": "reviewed", "decision": "ask"}, {"tool": "*", "decision": "allow"}]

pytestmark = pytest.mark.all


async def edit(stack: Stack, run: str, *edits: dict[str, Any], **more: Any) -> tuple[bool, str]:
    done = await stack.send("update", run, "edit", {"edits": list(edits), "by": "alice", **more})
    return done.returncode == 0, done.stdout + done.stderr


async def paused(stack: Stack, client: Client, run: str) -> WorkflowHandle[Any, Any]:
    done = await stack.send("update", run, "pause", {"by": "alice"})
    assert done.returncode == 0, done.stderr
    return client.get_workflow_handle(run)


async def test_a_paused_run_is_edited_on_a_branch_of_its_own_and_the_old_head_can_be_forked(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "edit", call("reads", label="r"), call("reviewed", label="e"), say("old"), policy=ASKED)
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "edit"})
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle))[0]
            told, said = await edit(stack, run, {"append": "user", "content": "x"})
            assert not told
            assert "neither paused nor parked" in said
            await paused(stack, client, run)
            for wrong, why in (
                ({"drop": 3}, "fork from checkpoint 1"),
                ({"drop": 2}, "orphan"),
                ({"tool_result": "9.0", "content": "x"}, "there is no call"),
            ):
                told, said = await edit(stack, run, wrong)
                assert not told
                assert why in said, said
            told, said = await edit(stack, run, {"append": "user", "content": "x"}, checkpoint=7)
            assert "meant for checkpoint 7" in said
            assert (await pending(handle))[0]["code"] == asked["code"], "nothing was changed"
            replay_script(
                stack,
                "edit",
                *(say("unused"), say("unused")),
                {**call("reads", label="r2"), "expect": "by hand"},
                {**say("new"), "expect": "r2"},
            )
            told, said = await edit(
                stack,
                run,
                {"replace": 2, "content": "another answer"},
                {"tool_result": "2.0", "content": "done by hand"},
                checkpoint=2,
            )
            assert told, said
            assert await handle.query("pending") == []
            await handle.execute_update("resume", {"by": "alice"})
            result = await handle.result()
            assert (result["output"], result["effects"]) == ("new", [])
            assert [each["decision"] for each in result["decisions"] if each["decision"] != "rejected"] == [
                "answered",
                "edit",
            ]
            lines = json.loads((await stack.shell(f"perdure checkpoints {run} --json")).stdout)["checkpoints"]
            branches = {line["sequence"]: line["branch"] for line in lines}
            assert branches[0] == branches[2] != branches[3]
            assert {line["state"] for line in lines} == {"ok"}
            assert (await stack.shell(f"perdure verify {run}")).returncode == 0
            await stack.start({"fork": {"workflow_id": run, "checkpoint": 2, "branch": branches[2]}}, f"{run}-old")
            old = client.get_workflow_handle(f"{run}-old")
            assert (await pending(old))[0]["arguments"] == {"label": "e"}
            await old.cancel()
        assert dict(outside.requests) == {"r": 1, "r2": 1}


async def test_an_effect_that_was_dropped_from_the_context_is_asked_about_again(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "dropped", call("keyed", label="k"), say("first"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "dropped", "interactive": True})
            handle = client.get_workflow_handle(run)
            await until(lambda: _idle(handle), what="the answer")
            await paused(stack, client, run)
            told, said = await edit(stack, run, {"drop": 1}, {"drop": 3}, {"append": "user", "content": "again"})
            assert told, said
            replay_script(stack, "dropped", {**call("keyed", label="other"), "expect": "again"}, say("second"))
            await handle.execute_update("resume", {"by": "alice"})
            asked = (await pending(handle))[0]
            assert "path that was left" in asked["question"]
            assert "keyed:1" in asked["question"]
            await handle.signal("deny", {"code": asked["code"], "by": "alice"})
            await handle.signal("finish", {"by": "alice"})
            result = await handle.result()
        assert dict(outside.effects) == {"k": 1}
    assert result["output"] == "second"
    assert [(effect["status"], effect["abandoned"]) for effect in result["effects"]] == [("COMMITTED", True)]


async def _idle(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def test_a_full_context_that_parks_a_run_is_made_smaller_by_an_edit(stack: Stack, client: Client) -> None:
    long = "A long line of a report. " * 40
    writes = [call("write_file", f"Step {n}", path=f"{n}.txt", content=long) for n in range(8)]
    stack.script("full", *writes, say("unused"))
    stack.bundle(
        "full",
        ["write_file"],
        policy=[{"tool": "write_file", "decision": "allow"}],
        model=[{"model": "full", "context_tokens": 1800}],
        session={"boundary": "off"},
    )
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "full"})
        handle = client.get_workflow_handle(run)
        await until(lambda: _parked(handle), what="the parking")
        turns = (await handle.query("status"))["turn"]
        replay_script(stack, "full", {**say("done"), "expect": "All is written"})
        drops = [{"drop": number} for number in range(1, 2 * turns, 2)]
        told, said = await edit(stack, run, *drops, {"append": "user", "content": "All is written. What now?"})
        assert told, said
        result = await handle.result()
    assert (result["status"], result["output"], result["sessions"]) == ("completed", "done", 1)


async def _parked(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool((await handle.query("status"))["status"] == "parked")


async def test_a_reset_applies_neither_an_old_approval_nor_an_old_edit(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "reset", call("reviewed", label="e"), say("done"), policy=ASKED)
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "reset"})
            handle = client.get_workflow_handle(run)
            first = (await pending(handle))[0]
            await paused(stack, client, run)
            told, said = await edit(stack, run, {"goal": "act once"}, checkpoint=1)
            assert told, said
            await stack.send("update", run, "approve", {"code": first["code"], "by": "alice"})
            await stack.send("update", run, "resume", {"by": "alice"})
            assert (await handle.result())["status"] == "completed"
            assert outside.effects["e"] == 1
            await reset(stack, run)
            handle = client.get_workflow_handle(run)
            again = (await pending(handle))[0]
            assert again["code"] != first["code"], "the approval before the reset is for another request"
            assert (await handle.query("status"))["goal"] == "act", "the edit was for another point"
            rejected = [each for each in await handle.query("decisions") if each["decision"] == "rejected"]
            assert len(rejected) <= 2
            await handle.signal("approve", {"code": again["code"], "by": "bob"})
            await handle.signal("resume", {"by": "bob"})
            result = await handle.result()
        assert outside.effects["e"] == 1, "the ledger has it"
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]


async def test_a_fork_that_is_reset_begins_again_where_it_was_forked(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "both", call("keyed", label="a"), call("looked", label="b"), say("done"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "both"})
            await client.get_workflow_handle(run).result()
            value = {"fork": {"workflow_id": run, "checkpoint": 1}, "repeat": "run"}
            forked = await stack.start(value, f"{run}-fork")
            handle = client.get_workflow_handle(forked)
            assert (await handle.result())["status"] == "completed"
            assert dict(outside.effects) == {"a": 1, "b": 2}
            await reset(stack, forked)
            handle = client.get_workflow_handle(forked)
            result = await handle.result()
        assert dict(outside.effects) == {"a": 1, "b": 2}
    assert stack.requests("both") == {"0": 1, "1": 3, "2": 3}
    assert result["checkpoint"]["sequence"] == 3
    assert [effect["tool"] for effect in result["effects"]] == ["looked"]


async def test_only_an_approver_answers_a_call_that_waits_for_approval_by_an_edit(stack: Stack, client: Client) -> None:
    """The answer stands in place of the call, so it is a decision on it."""
    stack.script("gated", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("gated", ["write_file"], approvals={"approvers": ["alice"]})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "gated"})
        handle = client.get_workflow_handle(run)
        asked = await pending(handle)
        await paused(stack, client, run)
        answered = {"edits": [{"tool_result": "1.0", "content": "Written."}]}
        wrong = await stack.send("update", run, "edit", {**answered, "by": "mallory"})
        assert wrong.returncode == 1, wrong.stdout
        assert "mallory may not decide it; the bundle's approvers are: alice" in wrong.stderr
        assert [each["code"] for each in await handle.query("pending")] == [asked[0]["code"]]
        right = await stack.send("update", run, "edit", {**answered, "by": "alice"})
        assert right.returncode == 0, right.stderr
        await handle.execute_update("resume", {"by": "mallory"})
        result = await handle.result()
    assert [(each["decision"], each["by"]) for each in result["decisions"]][-2:] == [
        ("answered", "alice"),
        ("edit", "alice"),
    ]
    assert result["effects"] == []
