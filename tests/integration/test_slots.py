"""How much runs at once, and how fast work is given out, by the settings of a worker."""

import itertools
import time
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client

from tests.integration.kit import Stack, calls, say, until

STATES = PendingActivityState


def scripted(stack: Stack, name: str, notes: Path) -> None:
    """A turn of four calls of a tool that notes when it begins and ends, and is held until there is `<notes>.go`."""
    stack.environment["PERDURE_TOOLS"] = "tests.integration.life_tools"
    stack.script(name, calls(*(("held", {"notes": str(notes), "label": str(n)}) for n in range(4))), say("done"))
    stack.bundle(name, ["held"])
    stack.serve_model()


async def states(client: Client, run: str) -> list[int]:
    """The states of the run's tool calls, as the service has them."""
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace)
    request.execution.workflow_id = run
    answer = await client.workflow_service.describe_workflow_execution(request)
    return sorted(each.state for each in answer.pending_activities if each.activity_type.name == "tool.run")


async def test_no_more_tools_run_at_once_than_there_are_slots(stack: Stack, client: Client) -> None:
    notes = stack.folder / "notes"
    scripted(stack, "slots", notes)
    stack.environment["PERDURE_SLOTS_TOOLS"] = "2"
    full = [STATES.PENDING_ACTIVITY_STATE_SCHEDULED] * 2 + [STATES.PENDING_ACTIVITY_STATE_STARTED] * 2
    async with stack.worker():
        run = await stack.start({"goal": "go on", "bundle": "slots"})

        async def taken() -> Any:
            return await states(client, run) == full

        await until(taken, 90, "two calls at work and two that wait")
        await until(
            lambda: notes.exists() and len(notes.read_text().splitlines()) == 2, 90, "two tools that have begun"
        )
        (stack.folder / "notes.go").touch()
        assert (await client.get_workflow_handle(run).result())["status"] == "completed"
    steps = [1 if line.startswith("begun") else -1 for line in notes.read_text().splitlines()]
    assert (len(steps), max(itertools.accumulate(steps))) == (8, 2)


async def test_tools_are_given_out_no_faster_than_the_rate(stack: Stack, client: Client) -> None:
    notes = stack.folder / "notes"
    scripted(stack, "rate", notes)
    stack.environment["PERDURE_RATE_TOOLS"] = "1"
    (stack.folder / "notes.go").touch()
    async with stack.worker():
        began = time.monotonic()
        run = await stack.start({"goal": "go on", "bundle": "rate"})
        assert (await client.get_workflow_handle(run).result())["status"] == "completed"
        took = time.monotonic() - began
    assert len(notes.read_text().splitlines()) == 8
    assert took >= 3, "four calls at one a second, and the end of the run is one more task of that queue"
