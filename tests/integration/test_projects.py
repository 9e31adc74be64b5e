"""Projects: from a brief to tasks that pass, session by session, in a repository of the user's."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)

from tests.integration.kit import Stack, until
from tests.integration.projects import (
    Held,
    git,
    grade,
    plan,
    repository,
    roles,
    rolled,
    send,
    start,
    told,
    two_tasks,
    waits_for_resume,
    work,
)
from tests.isolation import isolation

pytestmark = [isolation, pytest.mark.all]


async def test_a_project_of_two_tasks_is_built_in_the_users_repository(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    two_tasks(stack)
    bundles, mine = roles(stack), repository(tmp_path / "mine")
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles, repository=str(mine))
        result = await asyncio.wait_for(project.result(), 100)
        tasks, handoffs = await project.query("tasks"), await project.query("handoffs")
    assert result["status"] == "completed"
    assert [(task["id"], task["status"]) for task in tasks] == [("add", "passing"), ("times", "passing")]
    assert [(each["role"], each["task"], each["passing"]) for each in handoffs] == [
        ("initializer", None, True),
        ("coder", "add", True),
        ("evaluator", "add", True),
        ("coder", "times", True),
        ("evaluator", "times", True),
    ]
    branch = result["branch"]
    by_task = "--format=%(trailers:key=Task,valueonly,separator=%x2c)"
    assert git(mine, "log", "--reverse", by_task, branch).split() == ["add", "times"]
    assert git(mine, "rev-parse", branch).strip() == result["commit"]
    subjects = git(mine, "log", "--reverse", "--format=%s", branch).splitlines()
    assert [line for line in subjects if not line.startswith("tasks.json")] == [
        "Lay the ground",
        "add: done",
        "times: done",
    ]
    listed = json.loads(git(mine, "show", f"{branch}:tasks.json"))["tasks"]
    assert [task["status"] for task in listed] == ["passing", "passing"]
    assert result["usage"]["requests"] == 3 + 2 * 4 + 2 * 2


async def test_what_is_rejected_is_mended_and_what_breaks_later_is_found_by_its_checks(
    stack: Stack, client: Client
) -> None:
    told(stack, "plan", plan("add", "times"), "Prepare this project")
    told(stack, "add", work("add", "5", 5), "Do the task `add`")
    told(stack, "add-2", work("add", "a + b", 5), "Do the task `add`", "it knows its test")
    told(stack, "add-3", work("add", "b + a", 5), "Do the task `add`", "was broken since")
    breaks = {"sums/add.py": "def add(a: int, b: int) -> int:\n    return a - b\n"}
    told(stack, "times", work("times", "a * b", 6, **breaks), "Do the task `times`")
    told(stack, "grade-add", grade("add", False, "sums/add.py: it knows its test"), "Grade the task `add`")
    told(stack, "grade-2", grade("add"), "Grade the task `add`", "it knows its test")
    told(stack, "grade-times", grade("times"), "Grade the task `times`")
    bundles = roles(stack)
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        followed = await stack.shell(f"perdure project show {project.id} --follow --json")
        result = await asyncio.wait_for(project.result(), 200)
        handoffs = await project.query("handoffs")
        seen = await stack.shell(f"perdure project show {project.id} --follow")
        other = await stack.shell(f"perdure project show {handoffs[0]['run']}")
    events = [json.loads(line) for line in followed.stdout.splitlines()]
    assert (followed.returncode, events[-1]["status"]) == (0, "completed")
    assert [event["number"] for event in events if event["event"] == "session"] == list(range(1, 10))
    flips = [event for event in events if event["event"] == "task" and "was broken since" in str(event["reasons"])]
    assert flips[0]["id"] == "add"
    assert "add does not pass" in seen.stdout
    assert (other.returncode, "is no project" in other.stderr) == (1, True)
    assert result["status"] == "completed"
    assert [(each["role"], each["task"], each["passing"]) for each in handoffs[1:]] == [
        ("coder", "add", True),
        ("evaluator", "add", False),
        ("coder", "add", True),
        ("evaluator", "add", True),
        ("coder", "times", True),
        ("evaluator", "times", True),
        ("coder", "add", True),
        ("evaluator", "add", True),
    ]
    assert [entry["what"] for entry in result["log"]] == ["flipped"]


async def test_a_rollover_and_a_reset_find_the_session_at_work(stack: Stack, client: Client) -> None:
    told(stack, "plan", plan("add"), "Prepare this project")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`")
    told(stack, "grade-add", grade("add"), "Grade the task `add`")
    held, bundles = Held("add"), roles(stack)
    stack.serve_model(on_turn=held)
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        await until(lambda: held.came, 60)
        await send(project, "pause")
        await send(project, "rollover")
        await until(lambda: rolled(client, project.id), 30)
        held.release()
        await until(lambda: waits_for_resume(project), 60)
        done = await stack.temporal(
            "workflow", "reset", "-w", project.id, "-t", "FirstWorkflowTask", "--reason", "test"
        )
        assert done.returncode == 0, done.stderr
        await send(project, "resume")
        result = await asyncio.wait_for(project.result(), 100)
    assert result["status"] == "completed"
    assert result["sessions"] == 3
    assert {name: set(stack.requests(name).values()) for name in ("plan", "add", "grade-add")} == {
        "plan": {1},
        "add": {1},
        "grade-add": {1},
    }


async def test_a_fork_begins_between_two_tasks_with_a_clone_of_its_own(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    two_tasks(stack)
    bundles, mine = roles(stack), repository(tmp_path / "mine")
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles, repository=str(mine))
        result = await asyncio.wait_for(project.result(), 100)
        name = f"{project.id}-again"
        none = await stack.shell(f"perdure project fork {project.id}@9 --yes")
        assert (none.returncode, "there are: 1, 2, 3" in none.stderr) == (1, True), none.stderr
        done = await stack.shell(f"perdure project fork {project.id}@2 --yes --id {name}")
        assert done.returncode == 0, done.stderr
        assert "☑ add" in done.stdout
        stack.runs.append(name)
        forked = await asyncio.wait_for(client.get_workflow_handle(name, result_type=dict).result(), 100)
    counts = {script: set(stack.requests(script).values()) for script in ("plan", "add", "times")}
    assert counts == {"plan": {1}, "add": {1}, "times": {2}}, "what was before is not done again"
    assert forked["parent"]["workflow_id"] == project.id
    base = git(mine, "merge-base", result["branch"], forked["branch"]).strip()
    assert base == forked["parent"]["commit"]
    assert git(mine, "log", "-1", "--format=%s", base).strip() == "tasks.json: 1 of 2 pass"
    assert [task["status"] for task in forked["tasks"]] == ["passing", "passing"]
    assert git(mine, "rev-parse", forked["branch"]).strip() == forked["commit"] != result["commit"]


async def test_a_cancelled_project_cancels_its_session(stack: Stack, client: Client) -> None:
    told(stack, "plan", plan("add"), "Prepare this project")
    held, bundles = Held("plan"), roles(stack)
    stack.serve_model(on_turn=held)
    async with stack.worker():
        project = await start(stack, client, bundles=bundles)
        await until(lambda: held.came, 60)
        session = (await project.query("status"))["session"]["run"]
        await project.cancel()
        held.release()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(project.result(), 100)
    described = await client.get_workflow_handle(session).describe()
    assert described.status == WorkflowExecutionStatus.CANCELED


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"brief": ""}, "field `brief`"),
        ({"brief": "x", "repository": "https://example.com/x.git"}, "field `repository`"),
        ({"brief": "x", "bundles": {"coder": "nobody"}}, "nobody"),
        ({"brief": "x", "tasks": []}, "field `tasks` is not a field"),
    ],
)
async def test_a_wrong_start_fails_at_once_with_the_fields_name(
    stack: Stack, client: Client, value: dict[str, Any], said: str
) -> None:
    stack.bundle("unused", [])
    async with stack.worker():
        project = await start(stack, client, **value)
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(project.result(), 60)
    assert said in str(failed.value.cause)
