"""Paths of several runs that belong together: sub-agents, and projects."""

from temporalio.client import Client

from tests.durable.playing import decide, play, run
from tests.integration.kit import Stack, call, calls, pending, say, until
from tests.integration.projects import Held, grade, plan, roles, told, work


@play("delegated")
async def delegated(stack: Stack, client: Client) -> None:
    """Two sub-agents, one asks a person; a rollover of their parent while they work."""
    stack.script("kid", call("write_file", path="a.txt", content="a"), say("written"))
    stack.bundle("kid", ["write_file"])
    parts = calls(*(("delegate", {"goal": part, "bundle": "kid"}) for part in ("one", "two")))
    async with run(stack, client, "delegated", ["delegate"], parts, say("done")) as handle:
        await pending(handle, 2)
        for request in await pending(handle, 2):
            await handle.execute_update("approve", {"code": request["code"], "by": "ann"})
        asked = await pending(handle, 2)
        await handle.execute_update("rollover", {"by": "ann"})
        handle = client.get_workflow_handle("delegated")
        for request in asked:
            owner = client.get_workflow_handle(request["owner"])
            await owner.execute_update("approve", {"code": request["code"], "by": "ann"})
        await handle.result()


@play("works_for")
async def works_for(stack: Stack, client: Client) -> None:
    """A run that works for another one: it reports what it asks, and its end; it looks whether that one is there."""
    stack.script("boss", say("waiting"))
    stack.bundle("boss", [])
    turns = (call("write_file", path="a.txt", content="a"), say("done"))
    stack.script("works_for", *turns)
    stack.bundle("works_for", ["write_file"])
    stack.serve_model()
    value = {"goal": "wait", "bundle": "boss", "interactive": True}
    async with stack.worker():
        boss = await client.start_workflow("AgentRun", value, id="boss", task_queue=stack.name)
        parent = {"workflow_id": "boss", "run": boss.first_execution_run_id}
        given = {"goal": "x", "bundle": "works_for", "parent": parent}
        handle = await client.start_workflow("AgentRun", given, id="works_for", task_queue=stack.name)
        await decide(handle, "approve")
        await handle.result()
        await boss.execute_update("finish", {"by": "ann"})
        await boss.result()


@play("project")
async def project(stack: Stack, client: Client) -> None:
    """A task that is rejected and mended, one that a person drops; a rollover in the middle of a session."""
    told(stack, "plan", plan("add", "times"), "Prepare this project")
    told(stack, "add", work("add", "5", 5), "Do the task `add`")
    told(stack, "add-2", work("add", "a + b", 5), "Do the task `add`", "it knows its test")
    told(stack, "grade", grade("add", False, "it knows its test"), "Grade the task `add`")
    told(stack, "grade-2", grade("add"), "Grade the task `add`", "it knows its test")
    held, bundles = Held("add"), roles(stack)
    stack.serve_model(on_turn=held)
    async with stack.worker():
        value = {"brief": "Sums", "bundles": bundles, "budget": {"turns": 100}}
        handle = await client.start_workflow("ProjectRun", value, id="project", task_queue=stack.name)
        await until(lambda: held.came, 60)
        await handle.execute_update("rollover", {"by": "ann"})
        handle = client.get_workflow_handle("project")
        await handle.execute_update("message", {"text": "no dependencies", "by": "ann"})
        await handle.signal("drop", {"task": "times", "by": "ann"})
        await handle.signal("accept", {"task": "nothing", "by": "ann"})
        held.release()
        await handle.result()
