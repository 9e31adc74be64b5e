"""Starts that are not what the contract says: the run FAILS at once, by name, and never hangs or retries for ever."""

import asyncio
import json
import time
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from tests.integration.kit import Stack, until

GOAL = '"goal": "g"'
WRONG: dict[str, tuple[list[str], str]] = {
    "an empty object": (["--input", "{}"], "goal"),
    "null": (["--input", "null"], "null"),
    "true": (["--input", "true"], "true"),
    "a number": (["--input", "5"], "number"),
    "a list": (["--input", '["g"]'], "list"),
    "an empty goal": (["--input", '""'], "goal"),
    "a goal of blanks": (["--input", '{"goal": " \\n"}'], "goal"),
    "a goal that is a number": (["--input", '{"goal": 5}'], "goal"),
    "a goal that is null": (["--input", '{"goal": null}'], "goal"),
    "half a character in the goal": (["--input", '{"goal": "\\ud83d"}'], "surrogate"),
    "half a character in the inputs": (["--input", f'{{{GOAL}, "inputs": {{"a": ["\\ud83d"]}}}}'], "surrogate"),
    "an unknown field": (["--input", f'{{{GOAL}, "budgets": {{}}}}'], "budgets"),
    "an unknown limit": (["--input", f'{{{GOAL}, "budget": {{"turn": 5}}}}'], "budget.turn"),
    "a negative limit": (["--input", f'{{{GOAL}, "budget": {{"turns": -1}}}}'], "budget.turns"),
    "a negative cost": (["--input", f'{{{GOAL}, "budget": {{"cost_usd": -0.5}}}}'], "budget.cost_usd"),
    "a limit that is text": (["--input", f'{{{GOAL}, "budget": {{"turns": "9"}}}}'], "budget.turns"),
    "a limit that is true": (["--input", f'{{{GOAL}, "budget": {{"cost_usd": true}}}}'], "budget.cost_usd"),
    "an endless limit": (["--input", f'{{{GOAL}, "budget": {{"cost_usd": 1e999}}}}'], "too large"),
    "a huge limit": (["--input", f'{{{GOAL}, "budget": {{"turns": {"9" * 300}}}}}'], "budget.turns"),
    "a wait that is no duration": (["--input", f'{{{GOAL}, "budget": {{"wait": "soon"}}}}'], "budget.wait"),
    "a wait without end": (["--input", f'{{{GOAL}, "budget": {{"wait": "{"9" * 30}d"}}}}'], "budget.wait"),
    "inputs that are a list": (["--input", f'{{{GOAL}, "inputs": []}}'], "inputs"),
    "a bundle that is a number": (["--input", f'{{{GOAL}, "bundle": 5}}'], "bundle"),
    "interactive as text": (["--input", f'{{{GOAL}, "interactive": "yes"}}'], "interactive"),
    "a schema that is none": (["--input", f'{{{GOAL}, "output_schema": {{"type": "objekt"}}}}'], "output_schema"),
    "nested too deeply": (["--input", f'{{{GOAL}, "inputs": {{"a": {"[" * 500}{"]" * 500}}}}}'], "deeply"),
    "a key twice": (["--input", '{"goal": "a", "goal": "b"}'], "twice"),
    "two inputs": (["--input", '"a"', "--input", '"b"'], "2 were given"),
    "no input": ([], "0 were given"),
    "binary": (["--input-meta", "encoding=binary/plain", "--input", "goal"], "binary/plain"),
    "the state of another run": (["--input", '{"perdure_state": {"branch": "x"}}'], "perdure_state"),
}
"""The CLI's arguments, and what the message must name."""


async def failed(client: Client, run: str) -> ApplicationError:
    with pytest.raises(WorkflowFailureError) as failure:
        await asyncio.wait_for(client.get_workflow_handle(run).result(), 90)
    assert isinstance(failure.value.cause, ApplicationError)
    return failure.value.cause


async def test_wrong_input_fails_the_run_by_name_at_once(stack: Stack, client: Client) -> None:
    limit = asyncio.Semaphore(3)

    async def one(name: str, arguments: list[str], wanted: str) -> float:
        run = f"{stack.name}-{name.replace(' ', '-')}"
        async with limit:
            begun = time.monotonic()
            await stack.temporal(
                *("workflow", "start", "--type", "AgentRun", "--task-queue", stack.name, "--workflow-id", run),
                *arguments,
            )
            error = await failed(client, run)
            took = time.monotonic() - begun
        assert error.type == "InvalidInput", f"{name}: {error}"
        assert wanted in str(error), f"{name}: {error}"
        assert "temporal workflow start" in str(error), f"{name}: {error}"
        assert len(str(error).encode()) < 4096
        return took

    async with stack.worker():
        took = await asyncio.gather(*(one(name, *case) for name, case in WRONG.items()))
    assert min(took) < 2, took
    stack.runs.append(f"{stack.name}-two-inputs")


async def test_an_input_that_is_not_json_starts_nothing(stack: Stack, client: Client) -> None:
    for text in ("", "do it", "{", "'quoted'"):
        run = f"{stack.name}-{len(text)}"
        done = await stack.temporal(
            *("workflow", "start", "--type", "AgentRun", "--task-queue", stack.name, "--workflow-id", run),
            *("--input", text),
        )
        assert done.returncode == 1
        assert [found async for found in client.list_workflows(f"WorkflowId = '{run}'")] == []


async def test_an_unknown_bundle_fails_with_the_names_that_exist(stack: Stack, client: Client) -> None:
    stack.bundle("mine", ["read_file"], version="2")
    stack.bundle("mine", ["read_file"], version="10")
    async with stack.worker():
        for wanted, names in (
            ("nobody", ["assistant", "mine"]),
            ("mine@3", ["mine@2", "mine@10"]),
            ("../mine", ["mine"]),
            ("mine@", ["mine"]),
            ("日本@1", ["mine"]),
        ):
            run = await stack.start({"goal": "g", "bundle": wanted})
            if wanted == "mine@":
                await client.get_workflow_handle(run).terminate()
                continue
            error = await failed(client, run)
            assert error.type == "UnknownBundle"
            assert all(name in str(error) for name in names), str(error)


async def test_an_unknown_workflow_type_fails_with_the_types_that_exist(stack: Stack, client: Client) -> None:
    async with stack.worker():
        for number, kind in enumerate(("agentrun", "AgentRun ", "日本", "x" * 200)):
            for arguments in ([], ["--input", "{}"], ["--input", "1", "--input", "2"]):
                run = f"{stack.name}-{number}-{len(arguments)}"
                started = await stack.temporal(
                    *("workflow", "start", "--type", kind, "--task-queue", stack.name, "--workflow-id", run),
                    *arguments,
                )
                assert started.returncode == 0, started.stderr
                stack.runs.append(run)
                error = await failed(client, run)
                assert error.type == "InvalidInput"
                assert "AgentRun" in str(error).replace(repr(kind), "")


async def test_a_cron_schedule_is_refused_with_a_pointer_to_schedules(stack: Stack, client: Client) -> None:
    async with stack.worker():
        run = await stack.start({"goal": "g"}, None, "--cron", "@every 1s")
        handle = client.get_workflow_handle(run)

        async def failure() -> Any:
            async for found in client.list_workflows(f"WorkflowId = '{run}'"):
                if found.status == WorkflowExecutionStatus.FAILED:
                    return found.run_id
            return None

        first = await until(failure)
        events = [event async for event in client.get_workflow_handle(run, run_id=first).fetch_history_events()]
        reason = events[-1].workflow_execution_failed_event_attributes.failure
        assert reason.application_failure_info.type == "InvalidInput"
        assert "temporal schedule create" in reason.message
        await handle.terminate()


async def test_payloads_of_other_programs_fail_by_name(stack: Stack, client: Client) -> None:
    payloads = {
        "not-utf-8": Payload(metadata={"encoding": b"json/plain"}, data=b"\xff\xfe"),
        "nan": Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": "g", "inputs": {"a": NaN}}'),
        "no-encoding": Payload(data=b'"g"'),
        "empty": Payload(metadata={"encoding": b"json/plain"}),
        "zeros": Payload(metadata={"encoding": b"binary/plain"}, data=bytes(10)),
        "encrypted": Payload(metadata={"encoding": b"binary/encrypted"}, data=b"..."),
    }
    async with stack.worker():
        for name, payload in payloads.items():
            run = f"{stack.name}-{name}"
            await client.start_workflow("AgentRun", RawValue(payload), id=run, task_queue=stack.name)
            stack.runs.append(run)
            error = await failed(client, run)
            assert error.type == "InvalidInput", f"{name}: {error}"


async def test_an_input_over_the_services_limit_is_refused_by_the_service(stack: Stack) -> None:
    path = stack.folder / "large.json"
    path.write_text(json.dumps({"goal": "x" * 5_000_000}))
    done = await stack.temporal(
        *("workflow", "start", "--type", "AgentRun", "--task-queue", stack.name, "--input-file", str(path))
    )
    assert done.returncode == 1
    assert "size limit" in done.stderr or "larger than" in done.stderr, done.stderr


async def test_a_goal_just_under_the_limit_and_odd_ids_are_fine(stack: Stack, client: Client) -> None:
    stack.script("plain", {"text": "done"})
    stack.bundle("plain", [])
    stack.serve_model()
    async with stack.worker():
        for number, run in enumerate(("a b'c\"d, $(x) `y` \\ 🙂", "../../etc", "日本" * 60, "x" * 300, "%s{0}\nnext")):
            goal = "x" * 1_800_000 if number == 0 else f"goal of {run}"
            path = stack.folder / f"{number}.json"
            path.write_text(json.dumps({"goal": goal, "bundle": "plain"}))
            done = await stack.temporal(
                *("workflow", "start", "--type", "AgentRun", "--task-queue", stack.name),
                *("--workflow-id", run, "--input-file", str(path)),
            )
            assert done.returncode == 0, done.stderr
            stack.runs += [run] if "'" not in run else []
            result = await client.get_workflow_handle(run).result()
            assert result["status"] == "completed"
    assert sorted(path.name for path in (stack.folder / "store" / "threads").iterdir())
