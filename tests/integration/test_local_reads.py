"""Quick reads run inside the workflow task; one that is not quick goes on as a normal activity."""

from temporalio.client import Client

from tests.integration.kit import Stack, calls, say


async def test_a_local_read_that_is_not_quick_is_run_again_with_time_and_replays(stack: Stack, client: Client) -> None:
    stack.environment["PERDURE_TOOLS"] = "tests.integration.slow_tools"
    stack.script("slow", calls(("ponder", {"seconds": 2}), ("ponder", {"seconds": 0})), say("done"))
    stack.bundle("slow", ["ponder"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "think", "bundle": "slow"})
        result = await client.get_workflow_handle(run).result()
        transcript = await client.get_workflow_handle(run).query("transcript")
    assert result["status"] == "completed"  # its replay is checked when the stack is taken down
    assert transcript[0]["answers"] == {"1.0": "thought about it", "1.1": "thought about it"}
