"""Deadlines and long waits, on the time-skipping server: days pass in a moment."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tests.integration.kit import Stack, call, calls, pending, say
from workers.client import DATA_CONVERTER

SLOW = 90


@pytest.fixture
async def skipping(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[WorkflowEnvironment, Stack]]:
    """A server whose clock leaps over waits, and a stack on it."""
    server = shutil.which("temporal-test-server")
    assert server is not None, "install the development requirements: ./scripts/setup --dev"
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=server, data_converter=DATA_CONVERTER
    )
    stack = Stack(environment.client.service_client.config.target_host, tmp_path, "skipping")
    try:
        yield environment, stack
    finally:
        stack.close()
        await environment.shutdown()


def at(text: str) -> datetime:
    """A time of the query."""
    return datetime.fromisoformat(text)


async def start(client: Client, stack: Stack, bundle: str, name: str) -> WorkflowHandle[Any, Any]:
    value = {"goal": "g", "bundle": bundle}
    return await client.start_workflow("AgentRun", value, id=f"{bundle}-{name}", task_queue=stack.name)


async def test_silence_is_a_no_after_the_deadline_of_the_rule(skipping: tuple[WorkflowEnvironment, Stack]) -> None:
    environment, stack = skipping
    stack.script(
        "quiet", calls(("write_file", {"path": "a", "content": ""}), ("ask_human", {"question": "?"})), say(".")
    )
    stack.bundle("quiet", ["write_file", "ask_human"], policy=[{"tool": "*", "decision": "ask", "timeout": "7d"}])
    stack.serve_model()
    async with stack.worker():
        with environment.auto_time_skipping_disabled():
            handle = await start(environment.client, stack, "quiet", "1")
            items = await pending(handle, 2, SLOW)
        result = await handle.result()
    assert result["status"] == "completed"
    assert [(each["decision"], each["reason"], each["source"]["via"]) for each in result["decisions"]] == [
        ("expired", "expired", "timer")
    ] * 2
    assert {each["code"] for each in result["decisions"]} == {item["code"] for item in items}
    assert result["effects"] == []
    took = [at(each["at"]) - at(item["asked_at"]) for each, item in zip(result["decisions"], items, strict=True)]
    assert all(timedelta(days=7) <= each < timedelta(days=7, hours=1) for each in took), took


async def test_a_decision_before_the_deadline_wins(skipping: tuple[WorkflowEnvironment, Stack]) -> None:
    environment, stack = skipping
    stack.script("race", call("write_file", path="a", content=""), say("."))
    stack.bundle("race", ["write_file"], policy=[{"tool": "*", "decision": "ask", "timeout": "24h"}])
    stack.serve_model()
    async with stack.worker():
        with environment.auto_time_skipping_disabled():
            handle = await start(environment.client, stack, "race", "1")
            code = (await pending(handle, 1, SLOW))[0]["code"]
            await environment.sleep(timedelta(hours=23, minutes=50))
            await handle.signal("approve", {"code": code, "by": "alice"})
            result = await handle.result()
    assert result["effects"][0]["approved_by"] == "alice"
    assert [each["decision"] for each in result["decisions"]] == ["approved"]


async def test_a_stopped_run_waits_for_more_budget_as_long_as_the_bundle_says(
    skipping: tuple[WorkflowEnvironment, Stack],
) -> None:
    environment, stack = skipping
    stack.script("poor", call("read_file", path="a"), say("."))
    stack.bundle("poor", ["read_file"], budget={"turns": 1, "wait": "30d"})
    stack.serve_model()
    async with stack.worker():
        handle = await start(environment.client, stack, "poor", "1")
        result = await handle.result()
        took = at(result["decisions"][0]["at"]) - (await handle.describe()).start_time
    assert (result["status"], result["decisions"][0]["decision"]) == ("budget_exhausted", "expired")
    assert timedelta(days=30) <= took < timedelta(days=30, hours=1)


async def test_reminders_come_at_their_times_and_stop_with_the_decision(
    skipping: tuple[WorkflowEnvironment, Stack],
) -> None:
    environment, stack = skipping
    stack.script("remind", call("write_file", path="a", content=""), say("."))
    notify = [{"webhook": "ops", "after": after} for after in ("0s", "4h", "12h", "20h")]
    policy = [{"tool": "*", "decision": "ask", "timeout": "24h"}]
    stack.bundle("remind", ["write_file"], approvals={"notify": notify}, policy=policy)
    stack.serve_model()
    async with stack.worker():
        with environment.auto_time_skipping_disabled():
            handle = await start(environment.client, stack, "remind", "1")
            code = (await pending(handle, 1, SLOW))[0]["code"]
            await environment.sleep(timedelta(hours=13))
            await handle.execute_update("deny", {"code": code, "by": "a"})
            await handle.result()
    events = [event async for event in handle.fetch_history_events()]
    kinds = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    assert kinds.count("people.notify") == 3


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.all)])
async def test_runs_that_wait_for_days_hold_no_worker_and_all_resume(
    skipping: tuple[WorkflowEnvironment, Stack], count: int
) -> None:
    environment, stack = skipping
    stack.script("many", call("write_file", path="a", content=""), say("."))
    stack.bundle("many", ["write_file"], policy=[{"tool": "*", "decision": "ask", "timeout": "30d"}])
    stack.serve_model()
    with environment.auto_time_skipping_disabled():
        async with stack.worker(
            max_cached_workflows=0
        ):  # this server never takes a task back from a worker's own queue
            handles = [await start(environment.client, stack, "many", str(number)) for number in range(count)]
            codes = [(await pending(handle, 1, 300))[0]["code"] for handle in handles]
        # No worker is there at all while three days pass.
        await environment.sleep(timedelta(days=3))
        for handle in handles:
            description = await handle.describe()
            assert not description.raw_description.pending_activities
            assert not description.raw_description.HasField("pending_workflow_task")
        async with stack.worker():
            for handle, code in zip(handles, codes, strict=True):
                await handle.signal("approve", {"code": code, "by": "alice"})
            results = await asyncio.gather(*(handle.result() for handle in handles))
    assert {result["status"] for result in results} == {"completed"}
    assert all(result["usage"]["requests"] == 2 for result in results)
    assert all([effect["status"] for effect in result["effects"]] == ["COMMITTED"] for result in results)


def test_the_time_skipping_server_is_installed() -> None:
    assert os.access(shutil.which("temporal-test-server") or "", os.X_OK)


@pytest.mark.all
async def test_a_budget_that_is_handled_after_its_deadline_comes_too_late(stack: Stack, client: Client) -> None:
    """It was sent when no worker was there, and the deadline passed before one came."""
    stack.script("poor", call("read_file", path="a"), say("."))
    stack.bundle("poor", ["read_file"], budget={"turns": 1, "wait": "15s"})
    stack.serve_model()
    async with stack.worker():
        handle = await start(client, stack, "poor", "late")
        [asked] = await pending(handle)
    await handle.signal("budget", {"turns": 9, "by": "ann"})
    await asyncio.sleep((at(asked["deadline"]) - datetime.now(UTC)).total_seconds() + 0.5)
    async with stack.worker():
        result = await handle.result()
    assert result["status"] == "budget_exhausted"
    assert sorted(each["decision"] for each in result["decisions"]) == ["expired", "rejected"]
