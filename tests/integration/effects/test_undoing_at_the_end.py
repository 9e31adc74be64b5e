"""Compensation at the end of a run that is cancelled while it leaves, or whose worker for tools is away."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import statuses
from tests.integration.effects.test_undoing import at_rest
from tests.integration.kit import Stack, call, kill, pending, say, until


@pytest.mark.all
async def test_a_cancellation_leaves_no_undoing_to_itself_that_a_rollover_waits_for(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        turns = (call("looked", label="a"), call("patient", label="b"), say("done"))
        bundle(stack, "cut", *turns, tools=["looked", "patient"], effects={"on_end": "compensate"})
        stack.serve_model()
        held = outside.hold_undoing["b"] = threading.Event()
        async with stack.worker():
            _, handle = await at_rest(stack, client, "cut")
            await handle.signal("compensate", {"operation_id": await _made(handle, "patient"), "by": "alice"})
            await until(lambda: "b" in outside.undoing, 90)
            await handle.signal("rollover", {"by": "alice"})
            await handle.cancel()
            await until(lambda: _heard(handle), 60)
            held.set()
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            found = statuses(await handle.query("effects"))
        assert dict(outside.undone) == {"a": 1, "b": 1}
    assert (found["looked:1"], found["patient:1"]) == ("COMPENSATED", "COMPENSATED")
    assert isinstance(failure.value.cause, CancelledError)


async def test_a_failing_run_undoes_all_though_it_is_cancelled_while_a_person_is_asked(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        turns = (call("looked", label="a"), call("reviewed", label="b"))  # and the script runs out: a 400
        bundle(stack, "both", *turns, effects={"on_end": "compensate"})
        stack.serve_model()
        outside.refuse_undoing.add("b")
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "both"})
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, seconds=90))[0]
            await handle.cancel()
            await until(lambda: _heard(handle), 60)
            word = {"code": asked["code"], "outcome": "happened", "by": "alice"}
            done = await stack.send("update", run, "resolve", word)
            assert done.returncode == 0, done.stderr
            with pytest.raises(WorkflowFailureError) as failure:
                await handle.result()
            found = statuses(await handle.query("effects"))
        assert dict(outside.undone) == {"a": 1}
    assert (found["looked:1"], found["reviewed:1"]) == ("COMPENSATED", "COMPENSATED")
    assert isinstance(failure.value.cause, ApplicationError), "it ends as it was ending"


@pytest.mark.all
async def test_what_is_to_be_undone_at_the_end_waits_for_a_worker_for_tools(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "away", call("looked", label="a"), say("done"), effects={"on_end": "compensate"})
        stack.serve_model()
        stack.start_worker("--queue", "agents")
        tools = stack.start_worker("--queue", "tools")
        _, handle = await at_rest(stack, client, "away")
        kill(tools)
        await handle.cancel()
        await until(lambda: _heard(handle), 60)
        (plan,) = [each async for each in handle.fetch_history_events() if _scheduled(each) == "effect.plan"]
        limit = plan.activity_task_scheduled_event_attributes.schedule_to_close_timeout
        assert limit.ToTimedelta() == timedelta(0), "none"
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        stack.start_worker("--queue", "tools")
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert dict(outside.undone) == {"a": 1}


def _scheduled(event: Any) -> str:
    return str(event.activity_task_scheduled_event_attributes.activity_type.name)


async def _made(handle: Any, tool: str) -> str:
    found: list[str] = [each["operation_id"] for each in await handle.query("effects") if each["tool"] == tool]
    return found[0]


async def _heard(handle: Any) -> bool:
    """Whether a worker has gone on since the run was cancelled."""
    asked = False
    async for event in handle.fetch_history_events():
        asked = asked or event.HasField("workflow_execution_cancel_requested_event_attributes")
        if asked and event.HasField("workflow_task_completed_event_attributes"):
            return True
    return False
