"""Compensation: by a person's message, and by the bundle's word when a run is cancelled."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError, CancelledError

from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import reset, statuses
from tests.integration.kit import Stack, call, pending, say, until


@pytest.mark.all
async def test_all_effects_are_undone_in_reverse_and_one_that_fails_goes_to_a_person(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        turns = [
            call("looked", label="a"),
            call("reviewed", label="b"),
            call("keyed", label="k"),
            say("done"),
            say("bye"),
        ]
        bundle(stack, "undo", *turns)
        stack.serve_model()
        async with stack.worker():
            run, handle = await at_rest(stack, client, "undo")
            wrong = await stack.send("update", run, "compensate", {"operation_id": "nothing", "by": "alice"})
            assert wrong.returncode != 0
            assert "there is no operation nothing" in wrong.stderr
            outside.refuse.add("b")
            done = await stack.send("update", run, "compensate", {"by": "alice"})
            assert done.returncode == 0, done.stderr
            assert "without a compensation" in done.stdout
            asked = (await pending(handle, seconds=90))[0]
            assert (asked["kind"], outside.undone["a"]) == ("review", 0), "the last first, and the earlier ones wait"
            outside.refuse.clear()
            await stack.send(
                "update", run, "resolve", {"code": asked["code"], "outcome": "not_happened", "by": "alice"}
            )
            await until(lambda: outside.undone["a"] == 1, 90)
            await stack.send("update", run, "finish", {"by": "alice"})
            result = await handle.result()
    found = statuses(result["effects"])
    assert (found["looked:1"], found["reviewed:1"], found["keyed:1"]) == ("COMPENSATED", "COMPENSATED", "COMMITTED")
    assert found["looked:1:undo"] == "COMMITTED"
    assert dict(outside.undone) == {"a": 1, "b": 1}


@pytest.mark.parametrize("on_end", ["compensate", "keep"])
async def test_a_cancelled_run_undoes_its_effects_where_the_bundle_says_so(
    stack: Stack, client: Client, on_end: str
) -> None:
    async with effects_stack(stack) as outside:
        rules = [{"tool": "keyed", "decision": "ask"}, {"tool": "*", "decision": "allow"}]
        bundle(
            stack, "end", call("looked", label="a"), call("keyed", label="k"), policy=rules, effects={"on_end": on_end}
        )
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "end"})
            handle = client.get_workflow_handle(run)
            await pending(handle, seconds=90)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            effects: list[dict[str, Any]] = await handle.query("effects")
        assert isinstance(failure.value.cause, CancelledError)
        assert outside.undone["a"] == (1 if on_end == "compensate" else 0)
    assert statuses(effects)["looked:1"] == ("COMPENSATED" if on_end == "compensate" else "COMMITTED")


@pytest.mark.parametrize("on_end", ["compensate", "keep"])
async def test_a_failed_run_undoes_its_effects_where_the_bundle_says_so(
    stack: Stack, client: Client, on_end: str
) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "fails", call("looked", label="a"), effects={"on_end": on_end})  # and the script runs out: a 400
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "fails"})
            handle = client.get_workflow_handle(run)
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            effects: list[dict[str, Any]] = await handle.query("effects")
        assert isinstance(failure.value.cause, ApplicationError)
        assert failure.value.cause.type == "ModelRequestRejected"
        assert outside.undone["a"] == (1 if on_end == "compensate" else 0)
    assert statuses(effects)["looked:1"] == ("COMPENSATED" if on_end == "compensate" else "COMMITTED")


async def _waits(handle: Any, what: str) -> bool:
    return what in (await handle.query("status"))["waiting_on"]


async def at_rest(stack: Stack, client: Client, name: str) -> tuple[str, WorkflowHandle[Any, Any]]:
    """A run that has acted and waits to be spoken to."""
    run = await stack.start({"goal": "act", "bundle": name, "interactive": True})
    handle = client.get_workflow_handle(run)
    await until(lambda: _waits(handle, "message"), 90)
    return run, handle


async def test_what_a_person_confirmed_with_its_result_is_undone_by_that_result(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "told", call("reviewed", label="d"), say("done"))
        stack.serve_model()
        outside.hold["d"] = 10.0  # past the tool's deadline
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "told", "interactive": True})
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=90))[0]
            word = {"code": asked["code"], "outcome": "happened", "result": {"id": "d-1"}, "by": "alice"}
            await stack.send("update", run, "resolve", word)
            await until(lambda: _waits(handle, "message"), 90)
            assert [each["external_id"] for each in await handle.query("effects")] == ["d-1"]
            await until(lambda: outside.effects["d"] == 1, 60)
            await stack.send("update", run, "compensate", {"by": "alice"})
            await until(lambda: outside.undone["d"] == 1, 60)
            await stack.send("update", run, "finish", {"by": "alice"})
            result = await handle.result()
    assert statuses(result["effects"]) == {"reviewed:1": "COMPENSATED", "reviewed:1:undo": "COMMITTED"}


async def test_what_a_compensate_queued_is_done_before_the_run_ends(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "bye", call("looked", label="a"), call("looked", label="b"), say("done"))
        stack.serve_model()
        async with stack.worker():
            _, handle = await at_rest(stack, client, "bye")
            await handle.signal("compensate", {"by": "alice"})
            await handle.signal("finish", {"by": "alice"})
            result = await handle.result()
        assert dict(outside.undone) == {"a": 1, "b": 1}
    found = statuses(result["effects"])
    assert (found["looked:1"], found["looked:2"]) == ("COMPENSATED", "COMPENSATED")


async def test_an_undoing_in_review_is_waited_for_at_the_end_of_a_cancelled_run(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        turns = (call("looked", label="a"), call("reviewed", label="b"), say("done"))
        bundle(stack, "order", *turns, effects={"on_end": "compensate"})
        stack.serve_model()
        async with stack.worker():
            run, handle = await at_rest(stack, client, "order")
            outside.refuse.add("b")
            await stack.send("update", run, "compensate", {"by": "alice"})
            asked = (await pending(handle, seconds=90))[0]
            await handle.cancel()
            await until(lambda: _planned(handle), 60)
            again = await pending(handle)
            assert ([each["code"] for each in again], outside.undone["a"]) == ([asked["code"]], 0)
            word = {"code": asked["code"], "outcome": "happened", "by": "alice"}
            done = await stack.send("update", run, "resolve", word)
            assert done.returncode == 0, done.stderr
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            found = statuses(await handle.query("effects"))
        assert dict(outside.undone) == {"a": 1}
    assert (found["looked:1"], found["reviewed:1"]) == ("COMPENSATED", "COMPENSATED")


async def _planned(handle: Any) -> bool:
    """Whether what is to be undone has been looked at twice: for the message, and for the end."""
    done = 0
    async for event in handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        done += scheduled.activity_type.name == "effect.plan"
    return done == 2


async def test_an_undoing_in_review_is_asked_about_again_after_a_reset(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "lost", call("looked", label="a"), call("reviewed", label="b"), say("done"))
        stack.serve_model()
        async with stack.worker():
            run, handle = await at_rest(stack, client, "lost")
            outside.refuse.add("b")
            await stack.send("update", run, "compensate", {"by": "alice"})
            asked = (await pending(handle, seconds=90))[0]
            await reset(stack, run, "--reapply-exclude", "All")
            handle = client.get_workflow_handle(run)
            await until(lambda: _waits(handle, "message"), 90)
            (line,) = json.loads((await stack.shell("perdure effects --in-doubt --json")).stdout)
            done = await stack.shell(line["resolve"]["ask"].replace("YOUR-NAME", "alice"))
            assert done.returncode == 0, done.stderr
            again = (await pending(handle, seconds=90))[0]
            assert (again["operation_id"], again["kind"]) == (asked["operation_id"], "review")
            outside.refuse.clear()
            word = {"code": again["code"], "outcome": "not_happened", "by": "alice"}
            await stack.send("update", run, "resolve", word)
            await until(lambda: outside.undone["b"] == 1, 90)
            await stack.send("update", run, "finish", {"by": "alice"})
            result = await handle.result()
    found = statuses(result["effects"])
    assert found == {"looked:1": "COMMITTED", "reviewed:1": "COMPENSATED", "reviewed:1:undo": "COMMITTED"}


async def test_an_undoing_that_the_end_of_the_run_cuts_off_is_told(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "mid", call("looked", label="a"), call("reviewed", label="c"), say("done"))
        stack.serve_model()
        async with stack.worker():
            run, handle = await at_rest(stack, client, "mid")
            outside.refuse.add("c")
            await stack.send("update", run, "compensate", {"by": "alice"})
            await pending(handle, seconds=90)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            last = (await handle.query("decisions"))[-1]
        assert dict(outside.undone) == {}
    assert (last["decision"], last["by"]) == ("rejected", "alice")
    assert "ended before it had undone 2" in last["reason"]
    assert ":looked:1" in last["reason"]
