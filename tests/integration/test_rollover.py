"""Continue-as-new: when it happens, when it must not, and that nothing sent meanwhile is lost or done twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from activities.checkpoints import Checkpoints
from activities.context import Contexts
from activities.entries import Entries
from activities.segments import Segments
from activities.store import open_store
from tests.integration.kit import Stack, calls, pending, say, until
from workers.sending import NotTaken, send_update
from workflows.records import Head

ALLOW = [{"tool": "linger", "decision": "allow"}]


async def executions(client: Client, workflow_id: str) -> int:
    """How many executions a run has had so far."""
    return len([run async for run in client.list_workflows(f"WorkflowId = '{workflow_id}'")])


async def texts(stack: Stack, result: dict[str, Any]) -> list[str]:
    """What people said, as the model was told it."""
    store = open_store(stack.environment["PERDURE_STORE"])
    checkpoints, entries = Checkpoints(store), Entries(store)
    contexts = Contexts(checkpoints, entries, Segments(store, checkpoints, entries))
    _, workflow_id, start, _, branch, _ = result["checkpoint"]["key"].split("/")
    head = Head(branch=branch, sequence=result["checkpoint"]["sequence"], sha256=result["checkpoint"]["sha256"])
    return [m["text"] for m in await contexts.load(f"{workflow_id}.{start}", head) if m["role"] == "user"]


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.all)])
async def test_of_20_messages_a_second_over_many_rollovers_each_has_one_outcome(
    stack: Stack, client: Client, count: int
) -> None:
    stack.script("stream", *[say(f"answer {number}") for number in range(400)])
    stack.bundle("stream", [], limits={"history_events": 50}, budget={"turns": 400})
    stack.serve_model()
    sent = [f"message {number}" for number in range(count)]
    async with stack.worker():
        run = await stack.start({"goal": "listen", "bundle": "stream", "interactive": True})
        handle = client.get_workflow_handle(run)
        work = []
        for number, text in enumerate(sent):
            body = {"text": text, "by": "alice"}
            one = send_update(client, run, "message", body) if number % 2 else handle.signal("message", body)
            work.append(asyncio.create_task(one))
            await asyncio.sleep(0.05)
        answers = await asyncio.gather(*work)
        await send_update(client, run, "finish", {"by": "alice"})
        result = await handle.result()
        rolled = await executions(client, run)
    assert [answer["ok"] for answer in answers if answer is not None] == [True] * (count // 2)
    assert Counter(await texts(stack, result)) == Counter(["listen", *sent])
    assert rolled >= 3, "the rollovers are what this test is about"
    assert max(stack.requests("stream").values()) == 1, "no turn is asked for twice"


async def test_a_rollover_waits_for_a_running_tool_and_carries_a_pending_approval(stack: Stack, client: Client) -> None:
    stack.environment["PERDURE_TOOLS"] = "tests.integration.slow_tools"
    stack.script("carry", calls(("linger", {"seconds": 3}), ("write_file", {"path": "a", "content": "A"})), say("done"))
    stack.bundle("carry", ["linger", "write_file"], policy=ALLOW)
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "work", "bundle": "carry"})
        handle = client.get_workflow_handle(run)
        asked = (await pending(handle))[0]
        await send_update(client, run, "rollover", {"by": "alice"})
        assert await executions(client, run) == 1, "a tool runs"
        await until(lambda: _rolled(client, run), what="the rollover after the tool")
        assert (await pending(handle))[0]["code"] == asked["code"]
        effects = await handle.query("effects")
        assert [effect["tool"] for effect in effects] == ["linger"]
        await send_update(client, run, "approve", {"code": asked["code"], "by": "alice"})
        result = await handle.result()
    assert result["status"] == "completed"
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED", "COMMITTED"]
    assert (result["turns"], result["sessions"], result["usage"]["requests"]) == (2, 1, 2)
    lines = next((stack.folder / "workspaces").glob("*/lingered.txt")).read_text().splitlines()
    assert len(lines) == 1


async def test_an_update_sent_again_after_a_rollover_is_answered_again_and_not_applied(
    stack: Stack, client: Client
) -> None:
    stack.script("again", say("one"), say("two"), say("three"))
    stack.bundle("again", [])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "listen", "bundle": "again", "interactive": True})
        handle = client.get_workflow_handle(run)
        body = {"text": "only once", "by": "alice"}
        first = await handle.execute_update("message", body, id="same-id", result_type=dict)
        await send_update(client, run, "rollover", {"by": "alice"})
        await until(lambda: _rolled(client, run), what="the rollover")
        assert await handle.execute_update("message", body, id="same-id", result_type=dict) == first
        await send_update(client, run, "finish", {"by": "alice"})
        result = await handle.result()
    assert (await texts(stack, result)).count("only once") == 1


async def test_a_message_for_a_run_that_is_not_there_is_refused_at_once(stack: Stack, client: Client) -> None:
    with pytest.raises(NotTaken, match="nobody-here"):
        await send_update(client, "nobody-here", "pause", {"by": "alice"})


async def test_a_state_that_does_not_fit_fails_the_run_by_name(stack: Stack, client: Client) -> None:
    """Only what continue-as-new carried is taken for a state; in an ordinary input the key is an unknown field."""
    async with stack.worker():
        run = await stack.start({"perdure_state": {"branch": "x"}, "goal": "steal"})
        done = await stack.temporal("workflow", "result", "-w", run)
    assert "InvalidInput" in done.stdout + done.stderr


@pytest.mark.all
async def test_near_the_limit_of_updates_the_run_rolls_over(stack: Stack, client: Client) -> None:
    stack.script("many", say("ready"), *[say("ok")] * 50)
    stack.bundle("many", [], limits={"history_events": 100_000, "history_bytes": 50_000_000})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "wait", "bundle": "many", "interactive": True})
        await until(lambda: _rolled(client, run, 1))
        for _ in range(440):  # at most ten are in flight
            await asyncio.gather(*(send_update(client, run, "pause", {"by": str(n)}) for n in range(5)))
        assert await executions(client, run) >= 2
        await send_update(client, run, "resume", {"by": "alice"})
        await send_update(client, run, "finish", {"by": "alice"})
        assert (await client.get_workflow_handle(run).result())["status"] == "completed"


async def test_a_run_moves_to_a_new_version_and_hears_what_came_before_its_worker(stack: Stack, client: Client) -> None:
    stack.script("move", *[say("ok")] * 100)
    stack.bundle("move", [], budget={"turns": 100})
    stack.serve_model()
    stack.environment["PERDURE_BUILD_ID"] = "b1"
    async with stack.worker():
        await _make_current(client, "b1")
        run = await stack.start({"goal": "work", "bundle": "move", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: _waits(handle), what="the first answer")
        stack.environment["PERDURE_BUILD_ID"] = "b2"
        async with stack.worker():
            await _make_current(client, "b2")
        await until(lambda: _moved(client, run), what="the move")
        await handle.signal("message", {"text": "early", "by": "alice"})  # nobody serves the new version now
        async with stack.worker():
            await until(lambda: _waits(handle), what="the answer on the new version")
            await send_update(client, run, "finish", {"by": "alice"})
            result = await handle.result()
        await _make_current(client, "")
    assert (await texts(stack, result)).count("early") == 1
    assert await executions(client, run) == 2, "it moves once"


async def _make_current(client: Client, build_id: str) -> None:
    async def ask() -> bool:
        try:
            await client.workflow_service.set_worker_deployment_current_version(
                SetWorkerDeploymentCurrentVersionRequest(
                    namespace=client.namespace, deployment_name="perdure", build_id=build_id, identity="test"
                )
            )
        except RPCError:
            return False
        return True

    await until(ask, what=f"{build_id or 'no version'} being current")


async def _rolled(client: Client, run: str, times: int = 2) -> bool:
    return await executions(client, run) >= times


async def _moved(client: Client, run: str) -> bool:
    """Wakes the run: it hears of a new version with a workflow task, some time after the version became current."""
    await asyncio.sleep(0.3)
    await client.get_workflow_handle(run).signal("message", {"text": "go on", "by": "alice"})
    return await _rolled(client, run)


async def _waits(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]
