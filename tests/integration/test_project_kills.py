"""Workers die by SIGKILL while the model thinks for one of a project's sessions."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, kill, until
from tests.integration.projects import Held, git, grade, plan, repository, roles, start, told, work
from tests.isolation import isolation

pytestmark = [isolation, pytest.mark.all]
SCRIPTS = ("plan", "add", "grade-add")


@pytest.mark.parametrize("script", SCRIPTS, ids=["initializer", "coder", "evaluator"])
async def test_a_worker_killed_in_a_sessions_request_costs_that_request_and_no_more(
    stack: Stack, client: Client, tmp_path: Path, script: str
) -> None:
    told(stack, "plan", plan("add"), "Prepare this project")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`")
    told(stack, "grade-add", grade("add"), "Grade the task `add`")
    held, bundles, mine = Held(script), roles(stack), repository(tmp_path / "mine")
    stack.serve_model(on_turn=held)
    worker = stack.start_worker()
    project = await start(stack, client, bundles=bundles, repository=str(mine))
    await until(lambda: held.came, 100)
    kill(worker)
    held.release()
    stack.start_worker()
    result = await asyncio.wait_for(project.result(), 200)
    assert (result["status"], result["sessions"]) == ("completed", 3)
    again = {(name, turn): n for name in SCRIPTS for turn, n in stack.requests(name).items() if n > 1}
    assert again == {(script, "0"): 2}
    subjects = git(mine, "log", "--reverse", "--format=%s", result["branch"]).splitlines()
    assert [line for line in subjects if not line.startswith("tasks.json")] == ["Lay the ground", "add: done"]
