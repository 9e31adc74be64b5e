"""What is larger than Temporal takes: it works, or it is refused at once; nothing is tried for ever."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, call, pending, say, until

MB = 1_000_000


async def size_of(handle: WorkflowHandle[Any, Any]) -> int:
    return sum(event.ByteSize() for event in (await handle.fetch_history()).events)


async def test_a_large_goal_a_large_result_and_a_large_edit_work_and_stay_out_of_history(
    stack: Stack, client: Client
) -> None:
    stack.script("large", call("large_read", size=3 * MB), call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("large", ["large_read", "write_file"])
    stack.environment["PERDURE_TOOLS"] = "tests.integration.tools_for_state"
    stack.serve_model()
    ours = await Client.connect(stack.address, data_converter=stack.converter())
    run = f"{stack.name}-large"
    stack.runs.append(run)
    async with stack.worker():
        goal = {"goal": "x" * 5 * MB, "bundle": "large"}
        handle = await ours.start_workflow("AgentRun", goal, id=run, task_queue=stack.name)
        code = (await pending(handle))[0]["code"]
        edit = {"code": code, "by": "ann", "arguments": {"path": "a.txt", "content": "B" * 3 * MB}}
        await handle.execute_update("approve", edit)
        result = await handle.result()
    assert result["status"] == "completed"
    assert result["artifacts"][0]["bytes"] == 3 * MB
    assert await size_of(handle) < 100_000
    payloads = list((stack.folder / "store" / "threads").rglob("payloads/*"))
    assert sum(path.stat().st_size for path in payloads) > 8 * MB


async def test_the_plain_cli_is_told_at_once_that_an_input_is_too_large(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text(json.dumps({"goal": "x" * 3 * MB, "bundle": "assistant"}))
    sent = await stack.temporal(
        *("workflow", "start", "--type", "AgentRun", "--task-queue", stack.name, "--workflow-id", f"{stack.name}-cli"),
        *("--input-file", str(file)),
    )
    assert sent.returncode != 0
    assert "size" in sent.stderr.lower() + sent.stdout.lower()


@pytest.mark.all
async def test_a_payload_that_is_gone_is_named_and_the_run_goes_on_when_it_is_restored(
    stack: Stack, client: Client
) -> None:
    stack.script("gone", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("gone", ["write_file"])
    stack.serve_model()
    ours = await Client.connect(stack.address, data_converter=stack.converter())
    run = f"{stack.name}-gone"
    stack.runs.append(run)
    goal = {"goal": "x" * MB, "bundle": "gone"}
    async with stack.worker(max_cached_workflows=0):
        handle = await ours.start_workflow("AgentRun", goal, id=run, task_queue=stack.name)
        code = (await pending(handle))[0]["code"]
        payload = next((stack.folder / "store" / "threads").rglob("payloads/*"))
        held = payload.read_bytes()
        payload.unlink()
        await handle.signal("approve", {"code": code, "by": "ann"})

        async def failures() -> list[str]:
            failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
            events = (await handle.fetch_history()).events
            return [
                event.workflow_task_failed_event_attributes.failure.message
                for event in events
                if event.event_type == failed
            ]

        said = await until(failures, 60, "a failed workflow task that says why")
        assert payload.name in said[0]
        payload.write_bytes(held)
        result = await handle.result()
    assert result["status"] == "completed"
