"""Compensation: by a person's message, and by the bundle's word when a run is cancelled."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import statuses
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
            run = await stack.start({"goal": "act", "bundle": "undo", "interactive": True})
            handle = client.get_workflow_handle(run)
            await until(lambda: _waits(handle, "message"), 90)
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
