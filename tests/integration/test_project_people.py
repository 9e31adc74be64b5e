"""What a project asks of people, and what they may say without being asked."""

import asyncio
import json
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from tests.integration.kit import Stack, say, until
from tests.integration.projects import (
    asked_by,
    grade,
    parked_on,
    plan,
    repository,
    roles,
    send,
    shell,
    start,
    told,
    waits,
    work,
)
from tests.integration.test_notices import hook
from tests.isolation import isolation

pytestmark = [isolation, pytest.mark.all]
YOU = "YOUR-NAME"


async def test_a_task_that_is_rejected_too_often_is_a_persons_and_so_are_order_and_budget(
    stack: Stack, client: Client
) -> None:
    told(stack, "plan", plan("add", "times", "minus"), "Prepare this project")
    told(stack, "add", [say("I cannot")], "Do the task `add`")
    told(stack, "minus", work("minus", "a - b", -1), "Do the task `minus`")
    told(stack, "grade-minus", grade("minus"), "Grade the task `minus`")
    bundles = roles(stack, project={"tries": 2})
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles, budget={"turns": 4, "wait": "1h"})
        await until(lambda: waits(project, "budget"), 60)
        [limit] = await asked_by(stack, project)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await send(project, "drop", task="nothing")
        assert "there are: add, times, minus" in str(refused.value.cause)
        await send(project, "reorder", tasks=["add", "minus"])
        await shell(stack, limit["commands"]["raise"])
        await send(project, "budget", turns=100)
        await until(lambda: waits(project, "task"), 60)
        [asked] = await asked_by(stack, project)
        assert (asked["kind"], asked["owner"], asked["arguments"]["task"]) == ("question", project.id, "add")
        assert "rejected 2 times" in asked["question"]
        await send(project, "pause")
        again = '{"decision": "reject", "reason": "say it in words"}'
        assert "takes accept, reject or drop" in (await shell(stack, f"perdure answer {asked['code']} yes", 1)).stderr
        await shell(stack, f"perdure answer {asked['code']} '{again}' --by bob")
        await shell(stack, f"perdure answer {asked['code']} reject --by eve")  # the same again
        assert "already answered by bob" in (await shell(stack, asked["commands"]["answer"], 1)).stderr
        task = (await project.query("tasks"))[0]
        assert (task["status"], task["reasons"][-1]) == ("open", "bob: say it in words")
        await send(project, "resume")
        await until(lambda: waits(project, "task"), 60)
        [asked] = await asked_by(stack, project)
        await shell(stack, asked["commands"]["answer"])
        await send(project, "drop", task="times", reason="not needed")
        result = await asyncio.wait_for(project.result(), 100)
        decided = [(each["decision"], each["by"]) for each in await project.query("decisions")]
        assert (decided, await project.query("pending")) == (
            [("resolved", YOU), ("answered", "bob"), ("answered", YOU)],
            [],
        )
    assert result["status"] == "completed"
    assert [(task["id"], task["status"]) for task in result["tasks"]] == [
        ("add", "passing"),
        ("minus", "passing"),
        ("times", "dropped"),
    ]
    assert [entry["what"] for entry in result["log"] if entry["what"] != "rejected"] == [
        *("reorder", "budget", "budget", "pause", "reject", "resume", "accept", "drop")
    ]


async def test_a_limit_holds_up_nothing_once_people_have_decided_on_all_tasks(stack: Stack, client: Client) -> None:
    told(stack, "plan", plan("add"), "Prepare this project")
    bundles = roles(stack, approvals={"notify": [{"webhook": "ops"}, {"webhook": "ops", "after": "1h"}]})
    stack.serve_model()
    with hook() as ops:
        stack.environment |= {"PERDURE_CREDENTIAL_OPS": ops.url, "PERDURE_CREDENTIAL_OPS_KEY": "key-canary-0123456789"}
        async with stack.worker():
            project = await start(stack, client, bundles=bundles, budget={"turns": 3, "wait": "1h"})
            [(_, body)] = await until(lambda: ops.got, 60)
            [asked] = await project.query("pending")
            await send(project, "accept", task="add")
            result = await asyncio.wait_for(project.result(), 60)
            [decided] = await project.query("decisions")
    assert json.loads(body) == {"event": "pending", "goal": "Sums", **asked}
    assert (result["status"], result["used"]["turns"]) == ("completed", 3)
    assert decided["decision"] == "expired"


async def test_what_somebody_can_mend_parks_the_project_until_a_person_says_so(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    told(stack, "plan", [say("no plan today")], "Prepare this project")
    told(stack, "plan-2", plan("add"), "Prepare this project", "no file spec.md", "bob: try again")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`")
    told(stack, "grade-add", [say(json.dumps({"passing": "maybe"}))], "Grade the task `add`")
    bundles, mine = roles(stack, project={"tries": 1}), tmp_path / "mine"
    stack.serve_model()
    async with stack.worker():
        project = await start(stack, client, bundles=bundles, repository=str(mine))
        await until(lambda: waits(project, "repository"), 60)
        assert "there is no folder" in (await project.query("status"))["problem"]["message"]
        repository(mine)
        await send(project, "resume")
        await until(lambda: waits(project, "message"), 60)
        assert "no file spec.md" in (await project.query("status"))["problem"]["message"]
        [asked] = await asked_by(stack, project)
        assert "no file spec.md" in asked["question"]
        await shell(stack, f"perdure answer {asked['code']} 'try again' --by bob")
        await until(lambda: parked_on(project, "gave no grade"), 60)
        [asked] = await asked_by(stack, project)
        assert asked["arguments"]["task"] == "add"
        await shell(stack, asked["commands"]["answer"])
        result = await asyncio.wait_for(project.result(), 60)
    assert (result["status"], result["sessions"]) == ("completed", 4)
