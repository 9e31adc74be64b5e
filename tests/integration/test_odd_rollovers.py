"""Rollovers at odd moments: while a run ends, while a fork is taken over, and after an idle time; and limits that one
command raises."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from activities import fork_start, forking
from activities.errors import StoreUnavailable
from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import statuses
from tests.integration.kit import Stack, call, executions, pending, say, until
from tests.integration.test_steering import said_to_model

pytestmark = pytest.mark.all
SLOW = 90


async def look(handle: WorkflowHandle[Any, Any], name: str) -> Any:
    return (await handle.query("status"))[name]


async def rolled(client: Client, run: str, times: int) -> bool:
    return len(await executions(client, run)) > times


async def test_the_command_that_raises_a_limit_raises_it_enough_and_outlives_a_rollover(
    stack: Stack, client: Client
) -> None:
    """Tokens are passed by a whole turn at once, so twice the limit may still be too little."""
    stack.script("tokens", call("read_file", path="a"), say("done"))
    stack.bundle("tokens", ["read_file"], budget={"tokens": 1})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "read", "bundle": "tokens"})
        handle = client.get_workflow_handle(run)
        item = (await pending(handle, 1, SLOW))[0]
        little = await handle.execute_update("budget", {"tokens": 2, "by": "a"})
        assert "still reached: tokens" in little["status"]
        await handle.execute_update("rollover", {"by": "ops"})
        await until(lambda: rolled(client, run, 1), SLOW, "the rollover")
        carried = (await pending(handle, 1, SLOW))[0]
        assert (carried["code"], carried["commands"]) == (item["code"], item["commands"])
        done = await stack.shell(carried["commands"]["raise"])
        assert done.returncode == 0, done.stderr
        result = await asyncio.wait_for(handle.result(), SLOW)
    assert result["status"] == "completed"


async def test_a_run_that_is_ending_ends_so_after_a_rollover_too(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        rules = [{"tool": "keyed", "decision": "ask"}, {"tool": "*", "decision": "allow"}]
        turns = (call("reviewed", label="b"), call("keyed", label="k"), say("never asked for"))
        bundle(stack, "ending", *turns, policy=rules, limits={"denials": 1})
        stack.serve_model()
        async with stack.worker():
            run = await stack.start({"goal": "act", "bundle": "ending"})
            handle = client.get_workflow_handle(run)
            asked = (await pending(handle, 1, SLOW))[0]
            outside.refuse.add("b")
            await handle.execute_update("compensate", {"by": "alice"})
            review = next(item for item in await pending(handle, 2, SLOW) if item["kind"] == "review")
            await handle.execute_update("deny", {"code": asked["code"], "by": "alice"})
            await handle.signal("rollover", {"by": "ops"})
            await until(lambda: rolled(client, run, 1), SLOW, "the rollover")
            await handle.execute_update("resolve", {"code": review["code"], "outcome": "give_up", "by": "alice"})
            result = await asyncio.wait_for(handle.result(), SLOW)
    assert result["status"] == "denied"
    assert "people denied 1 requests" in result["reason"]
    assert statuses(result["effects"])["reviewed:1"] == "COMMITTED"
    assert stack.requests("ending") == {"0": 1, "1": 1}


async def test_a_rollover_while_a_fork_is_taken_over_waits_for_it(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.script("source", call("read_file", path="a"), say("done"))
    stack.bundle("source", ["read_file"])
    stack.serve_model()
    down, load, tries = asyncio.Event(), fork_start.load_start, []

    async def failing(*given: Any) -> Any:
        tries.append(given)
        if not down.is_set():
            raise StoreUnavailable("the store is down for this test")
        return await load(*given)

    async with stack.worker():
        source = await stack.start({"goal": "read", "bundle": "source"})
        await client.get_workflow_handle(source).result()
        monkeypatch.setattr(forking, "load_start", failing)
        await stack.start(
            {"fork": {"workflow_id": source, "checkpoint": 1, "edits": [{"append": "user", "content": "and now"}]}},
            "the-fork",
        )
        handle = client.get_workflow_handle("the-fork")
        await until(lambda: tries, SLOW, "a try at the fork")
        await handle.signal("rollover", {"by": "ops"})
        await until(lambda: len(tries) > 1, SLOW, "another try")
        down.set()
        result = await asyncio.wait_for(handle.result(), SLOW)
        assert len(await executions(client, "the-fork")) == 2
    assert result["status"] == "completed"
    assert result["parent"]["workflow_id"] == source
    assert "and now" in await said_to_model(stack, "the-fork")


async def test_an_idle_run_that_rolled_over_says_that_it_works_when_it_does(stack: Stack, client: Client) -> None:
    stack.script("idle", say("one"), call("write_file", path="a", content="x"), say("two"), say("bye"))
    stack.bundle("idle", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "talk", "bundle": "idle", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: look(handle, "waiting_on"), SLOW, "the first answer")
    await handle.signal("rollover", {"by": "ops"})
    await handle.signal("message", {"text": "go on", "by": "ann"})
    async with stack.worker():
        asked = (await pending(handle, 1, SLOW))[0]
        assert await look(handle, "waiting_on") == ["approval"]
        await handle.execute_update("approve", {"code": asked["code"], "by": "ann"})
        await handle.execute_update("finish", {"by": "ann"})
        result = await asyncio.wait_for(handle.result(), SLOW)
    assert result["status"] == "completed"
    assert statuses(result["effects"]) == {"write_file:1": "COMMITTED"}
