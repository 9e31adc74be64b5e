"""What does not decode is named, and nothing runs on it."""

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

from tests.integration.kit import until
from workers.client import WORKER_DATA_CONVERTER
from workers.misfits import NoMisfits
from workers.open_runs import _last_failure
from workflows.records import ToolAnswer, ToolRequest

RAN: list[str] = []
MINUTE = timedelta(minutes=1)


@activity.defn(name="test.takes")
async def takes(request: ToolRequest) -> str:
    """A tool, as far as the input goes."""
    RAN.append(request.thread)
    return "ran"


@activity.defn(name="test.gives")
async def gives() -> dict[str, Any]:
    """What a release with another word for it would answer."""
    return {"status": "finished"}


@workflow.defn(name="OtherRelease", sandboxed=False)
class OtherRelease:
    """Passes on what another release wrote."""

    @workflow.run
    async def run(self) -> str:
        try:
            await workflow.execute_activity(
                "test.takes", {"thread": "t.1", "branch": "b"}, start_to_close_timeout=MINUTE
            )
        except ActivityError as error:
            workflow.logger.debug("as it should: %s", error.cause)
        await workflow.execute_activity("test.gives", result_type=ToolAnswer, start_to_close_timeout=MINUTE)
        return "unreachable"


async def test_an_input_and_a_result_of_another_release_are_named_by_model_and_field(client: Client) -> None:
    config = client.config()
    config["data_converter"] = WORKER_DATA_CONVERTER
    worker = Worker(
        Client(**config),
        task_queue="misfits",
        workflows=[OtherRelease],
        activities=[takes, gives],
        interceptors=[NoMisfits()],
    )
    async with worker:
        handle = await client.start_workflow("OtherRelease", id="other-release", task_queue="misfits")

        async def failing() -> str:
            described = (await handle.describe()).raw_description
            if described.pending_workflow_task.attempt < 2:
                return ""
            return await _last_failure(client, described.workflow_execution_info.execution)

        said = await until(failing, what="a failed workflow task")
        events = [event async for event in handle.fetch_history_events()]
        await handle.terminate()
    name = "activity_task_failed_event_attributes"
    failed = [getattr(event, name) for event in events if event.WhichOneof("attributes") == name]
    types = [one.failure.application_failure_info.type for one in failed]
    assert types == ["IncompatiblePayload"], "and not tried again"
    assert "ToolRequest: field `head` is missing" in failed[0].failure.message
    assert "IncompatiblePayload: ToolAnswer: field `status`" in said
    assert RAN == []
