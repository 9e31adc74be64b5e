"""Looking back at real runs with the commands as people type them: show, diff, replay, rehearse."""

import asyncio
import json
import sys
from typing import Any

import pytest
from temporalio.client import Client

from tests.integration.kit import ROOT, Stack, call, calls, pending, plain_environment, say, until

NOTES = [{"tool": "write_file", "decision": "allow"}]


async def perdure(stack: Stack, line: str, code: int = 0) -> Any:
    """A command line, and what it printed as JSON."""
    done = await stack.shell(f"perdure {line} || exit $?")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout) if "--json" in line else done.stdout


async def waiting_run(stack: Stack, client: Client) -> str:
    """A run with a file written and a notice that waits for a person. To be used inside a worker."""
    name = await stack.start({"goal": "write, then tell", "bundle": "past@1"})
    await pending(client.get_workflow_handle(name))
    return name


def prepare(stack: Stack) -> None:
    stack.script(
        "past", call("write_file", path="a.txt", content="a"), calls(("notify", {"text": "written"})), say("told")
    )
    stack.bundle("past", ["write_file", "notify"], policy=NOTES)
    stack.bundle("past", ["write_file", "notify"], version="2", policy=[{"tool": "notify", "decision": "deny"}, *NOTES])
    stack.serve_model()


@pytest.mark.all
async def test_a_run_is_shown_replayed_and_rehearsed_while_it_waits_and_after(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        name = await waiting_run(stack, client)
        shown = await perdure(stack, f"show {name} --json")
        assert shown["live"]["status"] == "waiting"
        assert [item["kind"] for item in shown["live"]["pending"]] == ["approval"]
        assert shown["sessions"][0][1]["calls"][0]["decision"] == "asks a person"
        [replayed] = await perdure(stack, f"replay {name} --json")
        assert (replayed["run"], replayed["ok"]) == (name, True)
        opened = json.loads((await stack.shell("perdure replay --open --json || true")).stdout)
        assert (name, True) in [(one["run"], one["ok"]) for one in opened]  # beside what other tests left open

        follower = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.cli", "show", name, "--follow", "--json"),
            cwd=ROOT,
            env={**plain_environment(), **stack.environment},
            stdout=asyncio.subprocess.PIPE,
        )
        assert follower.stdout is not None
        lines = [json.loads(await asyncio.wait_for(follower.stdout.readline(), 60)) for _ in range(4)]
        assert [line["event"] for line in lines] == ["turn", "answers", "turn", "asks"]
        code = shown["live"]["pending"][0]["code"]
        await stack.send("update", name, "deny", {"code": code, "by": "ann", "reason": "not now"})
        rest = [json.loads(line) for line in (await asyncio.wait_for(follower.communicate(), 60))[0].splitlines()]
        assert rest[-1]["event"] == "state"
        assert rest[-1]["state"] == "completed"
        assert follower.returncode == 0

    text = await perdure(stack, f"show {name}")
    assert "ann denied this call. Reason: not now" in text
    assert "denied by ann" in text
    found = await perdure(stack, f"rehearse {name} --bundle past@2 --json", 1)
    assert [(each["turn"], each["kind"]) for each in found["findings"]] == [(2, "denied")]
    folder = stack.folder
    await stack.shell(f"temporal workflow show -w {name} -o json > {folder}/history.json")
    [from_file] = await perdure(stack, f"replay {folder}/history.json --json")
    assert (from_file["fault"], from_file["events"] > 20) == (None, True)
    told = await perdure(stack, f"replay --query \"WorkflowId = '{name}'\"")
    assert "1 histories, 0 that this code would not continue" in told


@pytest.mark.all
async def test_show_explains_what_a_reset_left(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        name = await waiting_run(stack, client)
        history = await client.get_workflow_handle(name).fetch_history()
        first = next(e.event_id for e in history.events if e.HasField("activity_task_completed_event_attributes"))
        point = next(
            e.event_id for e in history.events[first:] if e.HasField("workflow_task_completed_event_attributes")
        )
        done = await stack.temporal(
            "workflow", "reset", "-w", name, "--event-id", str(point), "--reason", "to show what is left"
        )
        assert done.returncode == 0, done.stderr

        async def left() -> Any:
            return (await perdure(stack, f"show {name} --json"))["left"]

        [path] = await until(left, 60)
        assert path["at"] == 0
        assert [turn["turn"] for turn in path["turns"]] == [1, 2]
        assert "nothing is left to mind" in path["means"][0]  # the new path has taken the written file over
        shown = await perdure(stack, f"show {name} --last 1")
        assert "left at checkpoint 0" in shown
        assert await perdure(stack, f"diff {name} {name}@0 --json", 1)


async def test_another_model_is_asked_only_after_its_price_was_said(stack: Stack, client: Client) -> None:
    stack.script("other", call("write_file", path="a.txt", content="a"), say("I tell nobody."), say("told"))
    prepare(stack)
    prices = {"input": 1.0, "output": 1.0}
    stack.bundle(
        "past", ["write_file", "notify"], version="3", policy=NOTES, model=[{"model": "other", "price": prices}]
    )
    async with stack.worker():
        name = await waiting_run(stack, client)
        item = (await client.get_workflow_handle(name).query("pending"))[0]
        await stack.send("update", name, "deny", {"code": item["code"], "by": "ann", "reason": "no"})
        await client.get_workflow_handle(name).result()
    refused = await stack.shell(f"echo n | perdure rehearse {name} --bundle past@3 --model || exit $?")
    assert (refused.returncode, stack.requests("other")) == (1, {})
    assert "3 requests to other:" in refused.stdout
    assert "USD" in refused.stdout
    found = await perdure(stack, f"rehearse {name} --bundle past@3 --model --yes --json", 1)
    told = [(each["turn"], each["said"]) for each in found["findings"] if each["kind"] == "chooses"]
    assert told == [(2, 'it answers, not notify {"text": "written"}')]
    assert found["asked"]["requests"] == 3
