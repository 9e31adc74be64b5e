"""Sessions that bend history, messages that come at odd moments, and floods of them."""

import asyncio
import shutil
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, call, until
from tests.integration.projects import Held, git, grade, plan, repository, roles, send, start, told, two_tasks, work
from tests.isolation import isolation

pytestmark = [isolation, pytest.mark.all]


async def test_a_coder_that_rewrites_history_is_rejected_and_the_next_begins_before_it(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    told(stack, "plan", plan("add"), "Prepare this project")
    bend = call("shell", argv=["sh", "-c", "rm -rf .git"])
    told(stack, "bends", [bend, *work("add", "a + b", 5)], "Do the task `add`")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`", "history was rewritten")
    told(stack, "grade-add", grade("add"), "Grade the task `add`")
    bundles, mine = roles(stack), repository(tmp_path / "mine")
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles, repository=str(mine))
        result = await asyncio.wait_for(project.result(), 100)
    assert (result["status"], result["sessions"]) == ("completed", 4)
    subjects = git(mine, "log", "--reverse", "--format=%s", result["branch"]).splitlines()
    assert [line for line in subjects if not line.startswith("tasks.json")] == ["Lay the ground", "add: done"]


async def test_what_people_say_reaches_the_evaluator_and_the_coder_and_no_flood_hides_what_was_decided(
    stack: Stack, client: Client
) -> None:
    two_tasks(stack, "ann: in words")
    held, bundles = Held("add"), roles(stack)
    stack.serve_model(on_turn=held)
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        await until(lambda: held.came, 60)
        await send(project, "message", text="in words")
        await send(project, "reorder", tasks=["add", "times"])
        for _ in range(70):
            await project.signal("accept", {"nobody": 1})
        held.release()
        result = await asyncio.wait_for(project.result(), 100)
    assert result["status"] == "completed"
    assert [entry["what"] for entry in result["log"]][:2] == ["message", "reorder"]
    assert len(result["log"]) == 50


async def test_a_project_goes_on_with_the_bundles_that_it_pinned_whatever_becomes_of_their_folders(
    stack: Stack, client: Client
) -> None:
    two_tasks(stack)
    held, bundles = Held("add"), roles(stack)
    stack.serve_model(on_turn=held)
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        await until(lambda: held.came, 60)
        shutil.rmtree(stack.folder / "bundles" / "evaluator")
        (stack.folder / "bundles" / "coder" / "9" / "prompt.md").write_text("You are another one.")
        held.release()
        result = await asyncio.wait_for(project.result(), 100)
    assert (result["status"], result["sessions"]) == ("completed", 5)
