"""Runs that are cancelled or fail while people still talk to them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError

from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import statuses
from tests.integration.kit import Stack, call, pending, say, until
from workflows.agent_run import AgentRun

RULES = [{"tool": "keyed", "decision": "ask"}, {"tool": "*", "decision": "allow"}]
REFUSED: dict[str, dict[str, Any]] = {
    "message": {"text": "hello?"},
    "pause": {},
    "budget": {"turns": 99},
    "rollover": {},
    "handoff": {},
    "compensate": {},
}


async def refused(handle: WorkflowHandle[Any, Any], name: str, **body: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await handle.execute_update(name, {**body, "by": "ann"})
    return str(failure.value.cause)


async def ended(handle: WorkflowHandle[Any, Any]) -> None:
    with pytest.raises(WorkflowFailureError):
        await handle.result()


@pytest.mark.parametrize("end", ["cancelled", pytest.param("failed", marks=pytest.mark.all)])
async def test_a_run_that_is_cancelled_or_fails_takes_nothing_more_and_says_what_it_left(
    stack: Stack, client: Client, end: str
) -> None:
    """Its last undoing is a person's to judge, which may take days: what is sent meanwhile cannot be used any more."""
    async with effects_stack(stack) as outside:
        effects = {"on_end": "compensate"}  # after its script the model answers with a 400
        bundle(stack, "ends", call("reviewed", label="b"), call("keyed", label="k"), policy=RULES, effects=effects)
        stack.serve_model()
        async with stack.worker():
            handle = client.get_workflow_handle(await stack.start({"goal": "act", "bundle": "ends"}))
            [asked] = await pending(handle)
            outside.refuse.add("b")
            await handle.execute_update("message", {"text": "tell Bob too", "by": "ann"})
            if end == "cancelled":
                await handle.cancel()
            else:
                await handle.execute_update("deny", {"code": asked["code"], "by": "ann"})

            async def undoing() -> Any:
                return [each for each in await handle.query("pending") if each["kind"] == "review"]

            [review] = await until(undoing)
            assert [each["code"] for each in await handle.query("pending")] == [review["code"]]
            for name, body in REFUSED.items():
                assert f"the run is ending ({end})" in await refused(handle, name, **body), name
            await refused(handle, "approve", code=asked["code"])
            await handle.execute_update("resolve", {"code": review["code"], "outcome": "give_up", "by": "ann"})
            await ended(handle)
            log = await handle.query("decisions")
            details = str((await handle.query("__temporal_workflow_metadata")).current_details)
            assert await handle.query("pending") == []
    said = [(each["decision"], each["by"], each["code"]) for each in log]
    assert f"**{end}**" in details
    assert "###" not in details, "nothing is asked of people any more"
    if end == "cancelled":
        assert said[:2] == [("rejected", "ann", None), ("expired", None, asked["code"])]
        assert [each["reason"] for each in log[:2]] == [
            "the run ended (cancelled) before it was read",
            "the run ended (cancelled)",
        ]
    assert said[-1] == ("resolved", "ann", review["code"])


async def test_a_cancellation_during_a_rollover_undoes_what_the_bundle_says(stack: Stack, client: Client) -> None:
    """The rollover waits for a message that is at work, which waits for a tool worker."""
    async with effects_stack(stack) as outside:
        turns = call("looked", label="a"), call("keyed", label="k"), say("done")
        bundle(stack, "rolls", *turns, policy=RULES, effects={"on_end": "compensate"})
        stack.serve_model()
        async with stack.worker():
            handle = client.get_workflow_handle(await stack.start({"goal": "act", "bundle": "rolls"}))
            await pending(handle)
        async with stack.worker("agents"):
            await handle.signal("compensate", {"operation_id": "nothing", "by": "ann"})
            await handle.execute_update("rollover", {"by": "ann"})
            await handle.cancel()
            await until(lambda: cancelled(handle))
        async with stack.worker():
            await ended(handle)
            effects = statuses(await handle.query("effects"))
            assert (await handle.query("status"))["status"] == "cancelled"
        assert outside.undone["a"] == 1
    assert effects["looked:1"] == "COMPENSATED"


async def cancelled(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether a workflow task has taken up the cancellation."""
    kinds = [each.WhichOneof("attributes") async for each in handle.fetch_history_events()]
    asked = kinds.index(CANCEL) if CANCEL in kinds else len(kinds)
    return "workflow_task_completed_event_attributes" in kinds[asked:]


CANCEL = "workflow_execution_cancel_requested_event_attributes"


async def test_a_rollover_waits_for_decisions_that_came_before_their_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are applied by no handler: an edit that is being checked would be carried over with nobody to end it."""

    async def wait_condition(ready: Any) -> None:
        if not ready():
            await asyncio.gather(*run.taking)
        assert ready()

    monkeypatch.setattr(workflow, "wait_condition", wait_condition)
    monkeypatch.setattr(workflow, "all_handlers_finished", lambda: True)
    monkeypatch.setattr(workflow, "patched", lambda _: True)
    judged = asyncio.Event()
    run: Any = SimpleNamespace(taking=[asyncio.create_task(judged.wait())])
    rolling = asyncio.create_task(AgentRun.handled(run))
    await asyncio.sleep(0.01)
    assert not rolling.done()
    judged.set()
    await rolling
