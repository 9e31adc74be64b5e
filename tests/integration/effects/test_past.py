"""After a reset, and in another start of the same id: what was done is known, and never done again in silence."""

import asyncio
import json
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy

from scripts.model_script import load_scripts
from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.kit import Stack, call, calls, pending, say, until

ASK = call("ask_human", question="Go on?")
EFFECTS = ("keyed", "looked", "reviewed", "skipped", "retried")


async def reset(stack: Stack, run: str, *more: str) -> None:
    """`temporal workflow reset` to the very beginning."""
    done = await stack.temporal(
        *("workflow", "reset", "-w", run, "-t", "FirstWorkflowTask", "--reason", "a test", *more),
    )
    assert done.returncode == 0, done.stderr


def replay_script(stack: Stack, name: str, *turns: dict[str, Any]) -> None:
    """The model says something else from now on."""
    stack.script(name, *turns)
    assert stack.model is not None
    stack.model.scripts = load_scripts(stack.folder / "scripts", {})


def statuses(effects: list[dict[str, Any]]) -> dict[str, str]:
    return {effect["operation_id"].split(":", 1)[1].split("~")[0]: effect["status"] for effect in effects}


async def approve(stack: Stack, handle: WorkflowHandle[Any, Any], run: str) -> dict[str, Any]:
    asked = (await pending(handle, seconds=90))[0]
    done = await stack.send("signal", run, "approve", {"code": asked["code"], "by": "alice"})
    assert done.returncode == 0, done.stderr
    await until(lambda: _closed(handle, asked["code"]), 60)
    return asked


async def _closed(handle: WorkflowHandle[Any, Any], code: str) -> bool:
    return all(each["code"] != code for each in await handle.query("pending"))


async def test_after_a_reset_the_same_steps_find_their_results_whatever_their_class(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        turn = calls(*((tool, {"label": f"a-{tool}"}) for tool in EFFECTS))
        bundle(stack, "same", turn, say("done"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "same"})
            first = await client.get_workflow_handle(run).result()
            await reset(stack, run)
            second = await client.get_workflow_handle(run).result()
        assert dict(outside.effects) == {f"a-{tool}": 1 for tool in EFFECTS}
    assert set(statuses(second["effects"]).values()) == {"COMMITTED"}
    assert {each["operation_id"] for each in second["effects"]} == {each["operation_id"] for each in first["effects"]}
    assert not any(effect["abandoned"] for effect in second["effects"])


async def test_a_workflow_retry_finds_what_the_execution_before_did(stack: Stack, client: Client) -> None:
    """The failures of a run are final, so a retry policy acts after a timeout of one execution."""
    async with effects_stack(stack) as outside:
        stack.script("retry", calls(*((tool, {"label": f"r-{tool}"}) for tool in EFFECTS)), ASK, say("done"))
        stack.bundle("retry", [*EFFECTS, "ask_human"], policy=[{"tool": "*", "decision": "allow"}])
        stack.serve_model()
        async with stack.worker():
            given = {"goal": "act", "bundle": "retry"}
            handle = await client.start_workflow(
                *("AgentRun", given),
                id=f"{stack.name}-retry",
                task_queue=stack.name,
                run_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5),
            )
            first = handle.first_execution_run_id
            newest = client.get_workflow_handle(handle.id)
            await until(lambda: _retried(newest, first), 90, "the retry after the timeout")
            asked = (await pending(newest, seconds=25))[0]
            assert asked["kind"] == "question"
            done = await stack.send("update", handle.id, "answer", {"code": asked["code"], "value": "yes", "by": "al"})
            assert done.returncode == 0, done.stderr
            result = await newest.result()
        assert dict(outside.effects) == {f"r-{tool}": 1 for tool in EFFECTS}
    assert set(statuses(result["effects"]).values()) == {"COMMITTED"}


async def _retried(handle: WorkflowHandle[Any, Any], first: str | None) -> bool:
    return (await handle.describe()).run_id != first


async def test_another_path_after_a_reset_asks_a_person_and_lists_what_was_left(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "other", call("reviewed", label="a"), call("keyed", label="k"), say("done"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "other"})
            await client.get_workflow_handle(run).result()
            replay_script(stack, "other", call("reviewed", label="b"), say("done"))
            await reset(stack, run)
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=90))[0]
            assert "path that was left" in asked["question"]
            assert dict(outside.effects) == {"a": 1, "k": 1}, "nothing is run before somebody has said so"
            details = str(await handle.query("__temporal_workflow_metadata"))
            assert "left by a reset" in details
            assert "reviewed:1" in details
            await stack.send("update", run, "approve", {"code": asked["code"], "by": "alice"})
            result = await handle.result()
        assert dict(outside.effects) == {"a": 1, "k": 1, "b": 1}
        told = [
            path
            for path in (stack.folder / "store").rglob("entries/*")
            if b"set back to an earlier" in path.read_bytes()
        ]
        assert told, "the model was told"
    left = {effect["tool"]: effect for effect in result["effects"] if effect["abandoned"]}
    assert set(left) == {"reviewed", "keyed"}
    mine = next(effect for effect in result["effects"] if not effect["abandoned"])
    assert mine["operation_id"].partition("~")[0] == left["reviewed"]["operation_id"]
    assert "~" in mine["operation_id"]


async def test_an_equal_request_of_an_earlier_start_asks_or_runs_or_is_reused(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "nightly", call("reviewed", label="n"), say("done"))
        stack.serve_model()
        async with stack.worker():
            given: dict[str, Any] = {"goal": "act", "bundle": "nightly"}
            run = await stack.start(given, "nightly-job")
            first = await client.get_workflow_handle(run).result()
            await stack.start(given | {"repeat": "reuse"}, "nightly-job")
            reused = await client.get_workflow_handle(run).result()
            assert outside.effects["n"] == 1
            assert reused["effects"] == []
            await stack.start(given | {"repeat": "run"}, "nightly-job")
            again = await client.get_workflow_handle(run).result()
            assert outside.effects["n"] == 2
            await stack.start(given, "nightly-job")
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=90))[0]
            assert "the very same request was made before" in asked["question"]
            assert outside.effects["n"] == 2
            await stack.send("update", run, "deny", {"code": asked["code"], "by": "alice"})
            await handle.result()
        assert outside.effects["n"] == 2
    ids = [result["effects"][0]["operation_id"] for result in (first, again)]
    assert ids[0] != ids[1], "each start has ids of its own"


async def test_an_action_that_is_reused_takes_no_number_from_the_next_ones(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        first, both = call("reviewed", label="a"), call("reviewed", label="a")
        both["calls"] += call("reviewed", label="b")["calls"]
        bundle(stack, "early", first, say("done"))
        bundle(stack, "later", both, call("reviewed", label="c"), say("done"))
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "early"}, "the-job")
            await client.get_workflow_handle(run).result()
            await stack.start({"goal": "act", "bundle": "later", "repeat": "reuse"}, "the-job")
            result = await asyncio.wait_for(client.get_workflow_handle(run).result(), 90)
        assert dict(outside.effects) == {"a": 1, "b": 1, "c": 1}
    assert statuses(result["effects"]) == {"reviewed:1": "COMMITTED", "reviewed:2": "COMMITTED"}
    assert result["decisions"] == []


async def test_an_approval_that_a_reset_applies_again_decides_no_request_made_after_the_point(
    stack: Stack, client: Client
) -> None:
    stack.script("again", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("again", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "again"})
        before = await approve(stack, client.get_workflow_handle(run), run)
        assert (await client.get_workflow_handle(run).result())["status"] == "completed"
        await reset(stack, run)
        handle = client.get_workflow_handle(run)
        asked = (await pending(handle, seconds=90))[0]
        assert asked["code"] != before["code"]
        assert asked["operation_id"] == before["operation_id"]
        rejected = [each for each in await handle.query("decisions") if each["decision"] == "rejected"]
        assert [each["code"] for each in rejected] == [before["code"]], "the signal was applied again, to nothing"
        assert await pending(handle) == [asked], "and it decided nothing"
        assert await approve(stack, handle, run) == asked
        result = await handle.result()
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]


async def test_an_effect_in_doubt_is_asked_about_again_after_a_reset_and_after_a_rollover(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "doubt", call("reviewed", label="d"), say("done"))
        stack.serve_model()
        outside.hold["d"] = 12.0  # past the tool's deadline: it acts, and nobody hears of it
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "doubt"})
            handle = client.get_workflow_handle(run)
            before = (await pending(handle, seconds=90))[0]
            shown = await stack.shell("perdure effects --in-doubt --json")
            assert shown.returncode == 1, shown.stderr
            (line,) = json.loads(shown.stdout)
            assert (line["status"], line["resolve"]) == ("IN_REVIEW", before["commands"])
            assert "resolve" in (await stack.shell(f"perdure effects {run}")).stdout
            await stack.send("signal", run, "rollover", {"by": "alice"})
            handle = client.get_workflow_handle(run)
            await until(lambda: _continued(client, run), 60)
            carried = (await pending(handle, seconds=90))[0]
            assert carried["code"] == before["code"]
            assert carried["kind"] == "review"
            await reset(stack, run, "--reapply-exclude", "All")
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=120))[0]
            assert asked["kind"] == "review"
            await until(lambda: outside.effects["d"] == 1, 60)
            done = await stack.shell(asked["commands"]["happened"])
            assert done.returncode == 0, f"{asked['commands']['happened']}: {done.stderr}"
            result = await handle.result()
        assert outside.effects["d"] == 1
    assert statuses(result["effects"]) == {"reviewed:1": "COMMITTED"}


async def _continued(client: Client, run: str) -> bool:
    handle = client.get_workflow_handle(run)
    described = await handle.describe()
    return described.raw_description.workflow_execution_info.first_run_id != described.run_id
