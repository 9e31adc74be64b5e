"""Projects that are cancelled, or rolled over while they are parked."""

import asyncio

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import CancelledError

from activities import handing, project_repository
from activities.world import World
from tests.integration.kit import Stack, say, until
from tests.integration.projects import plan, roles, rolled, send, start, told, waits, work
from tests.isolation import isolation
from workflows.records import Files, Workspace

pytestmark = isolation


async def test_a_project_that_is_cancelled_while_its_tasks_are_kept_ends_so(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activity hears of it only when it ends, and settles: its result says nothing of a cancellation."""
    told(stack, "plan", plan("add"), "Prepare this project")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`")
    bundles, came, go = roles(stack), asyncio.Event(), asyncio.Event()
    stack.serve_model()
    take_over = handing.hand_over

    async def held(world: World, workspace: Workspace, thread: str) -> Files:
        came.set()
        await go.wait()
        return await take_over(world, workspace, thread)

    async with stack.worker():
        monkeypatch.setattr(project_repository, "hand_over", held)
        project = await start(stack, client, bundles=bundles)
        await asyncio.wait_for(came.wait(), 60)
        await project.cancel()
        go.set()
        with pytest.raises(WorkflowFailureError) as failure:
            await asyncio.wait_for(project.result(), 60)
    assert isinstance(failure.value.cause, CancelledError)
    assert stack.requests("add") == {}


@pytest.mark.all
async def test_a_project_that_is_parked_rolls_over_and_still_waits_for_a_word(stack: Stack, client: Client) -> None:
    told(stack, "plan", [say("I would rather not")] * 9, "Prepare this project")
    bundles = roles(stack, project={"tries": 1})
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        await until(lambda: waits(project, "message"), 60)
        planned = stack.requests("plan")
        await send(project, "rollover")
        await until(lambda: rolled(client, project.id), 60)
        await until(lambda: waits(project, "message"), 60)
        assert (await project.query("status"))["problem"]["type"] == "PlanRefused"
        assert stack.requests("plan") == planned
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send(project, "approve", code="K7Q2")
        assert "neither the project nor a session asks for K7Q2" in str(refused.value.cause)
        await project.cancel()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(project.result(), 60)
