"""Bundles change, are edited and deleted under runs that are open: none of them changes, and nothing is silent."""

import asyncio
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tests.integration.kit import ROOT, Stack, call, kill, pending, say, until
from tests.integration.test_changed_tools import SLOW

OPEN = 20


async def waits(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


def prompt(stack: Stack, version: str) -> Path:
    return stack.folder / "bundles" / "steady" / version / "prompt.md"


@pytest.mark.all
async def test_a_prompt_that_is_edited_changes_no_open_run_and_the_next_start_uses_the_new_one(
    stack: Stack, client: Client
) -> None:
    stack.script("old", say("one"), say("two"))
    stack.script("new", say("new"))
    stack.bundle("steady", [], model=[{"model": "old"}])
    stack.serve_model()
    async with stack.worker():
        value = {"goal": "g", "bundle": "steady", "interactive": True}
        names = [f"{stack.name}-{number}" for number in range(OPEN)]
        handles = [await client.start_workflow("AgentRun", value, id=n, task_queue=stack.name) for n in names]
        stack.runs += names[:2]
        for handle in handles:
            await until(partial(waits, handle), 60, "the first answer")
        used = {(await handle.query("status"))["versions"]["bundle_digest"] for handle in handles}

        stack.bundle("steady", [], version="2", model=[{"model": "new"}])
        prompt(stack, "2").write_text("You are new.\n")
        prompt(stack, "1").write_text("You were edited in place.\n")
        listed = await stack.shell("perdure bundles steady --json")
        assert listed.returncode == 1, "a folder is not what its version was"
        lines = {line["bundle"]: line for line in json.loads(listed.stdout)}
        assert (lines["steady@1"]["changed"], lines["steady@2"]["changed"]) == (True, False)
        assert len(lines["steady@1"]["open_runs"]) == OPEN
        assert set(lines["steady@1"]["digests"]) == used
        differ = await stack.shell("perdure bundles steady@1 steady@2")
        assert differ.returncode == 1
        assert "-You are an agent in a test." in differ.stdout, "what was used, not what was edited"
        assert "+You are new." in differ.stdout

        refused = await stack.start({"goal": "g", "bundle": "steady@1"}, "steady-refused")
        failed = await stack.temporal("workflow", "result", "-w", refused)
        said = failed.stdout + failed.stderr
        assert "BundleConflict" in said
        assert "-You are an agent in a test." in said
        assert "+You were edited in place." in said
        fresh = await stack.start({"goal": "g", "bundle": "steady"}, "steady-fresh")
        result = await client.get_workflow_handle(fresh).result()
        assert (result["output"], result["versions"]["bundle"]) == ("new", "steady@2")

        shutil.rmtree(stack.folder / "bundles" / "steady")
        for handle in handles:
            await handle.signal("message", {"text": "go on", "by": "ann"})
            await handle.signal("finish", {"by": "ann"})
        results = await asyncio.gather(*(handle.result() for handle in handles))
    assert {result["output"] for result in results} == {"two"}
    assert {result["versions"]["bundle_digest"] for result in results} == used


@pytest.mark.all
async def test_two_installations_with_one_name_and_version_are_told_apart(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    other = Stack(stack.address, tmp_path / "other", f"{stack.name}-other")
    for each, text in ((stack, "Here.\n"), (other, "There.\n")):
        each.script("twice", say("one"))
        each.bundle("twice", [])
        (each.folder / "bundles" / "twice" / "1" / "prompt.md").write_text(text)
        each.serve_model()
    value = {"goal": "g", "bundle": "twice", "interactive": True}
    try:
        async with stack.worker(), other.worker():
            runs = [await each.start(value) for each in (stack, other)]
            handles = [client.get_workflow_handle(run) for run in runs]
            for handle in handles:
                await until(partial(waits, handle), 30, "the first answer")
            mine, theirs = [(await handle.query("status"))["versions"]["bundle_digest"] for handle in handles]

            async def listed() -> Any:
                done = await stack.shell("perdure bundles twice@1 --json")
                [line] = json.loads(done.stdout)
                return line if line["elsewhere"] else None

            line = await until(listed, 90, "the other installation's run")
            shown = await stack.shell("perdure bundles twice")
            for handle in handles:
                await handle.execute_update("finish", {"by": "ann"})
    finally:
        other.close()
    assert (line["digests"], line["open_runs"], line["by_digest"]) == ([mine], [runs[0]], {mine: [runs[0]]})
    assert line["elsewhere"] == {theirs: [runs[1]]}
    assert theirs[:12] in shown.stdout
    assert "of another installation" in shown.stdout


TOOL = '''
from activities.tools import tool

@tool(effect="once")
async def {name}(to: str) -> str:
    """Pay."""
    return "paid"
'''


@pytest.mark.all
async def test_a_deleted_bundle_and_a_tool_that_is_gone_strand_no_run(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    stack.script("gone", call("pay", to="bob"), {**say("then not"), "expect": "no longer available"})
    stack.bundle("gone", ["pay"])
    stack.serve_model()

    def worker(tool: str) -> Any:
        (tmp_path / "tools_that_go.py").write_text(TOOL.format(name=tool))
        more = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        return stack.start_worker(PERDURE_TOOLS="tools_that_go", **more)

    run = await stack.start({"goal": "pay", "bundle": "gone"})
    handle = client.get_workflow_handle(run)
    first = worker("pay")
    request = (await pending(handle, 1, SLOW))[0]
    kill(first)
    shutil.rmtree(stack.folder / "bundles" / "gone")
    worker("other")
    await until(lambda: _answers(handle), SLOW, "the second worker")
    await handle.execute_update("approve", {"code": request["code"], "by": "ann"})
    result = await handle.result()
    assert (result["status"], result["output"]) == ("completed", "then not")
    assert [effect["status"] for effect in result["effects"] if effect["status"] == "COMMITTED"] == []


async def _answers(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        await handle.query("status")
    except RPCError:
        return False
    return True
