"""Traces of runs that belong together: sub-agents are in their parent's, a fork has its own, linked to its source."""

from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from tests.integration.kit import Stack, call, pending, say, until
from tests.integration.test_children import ALLOW, children, kids, reset, result_of
from tests.integration.traced import check_linked, check_whole, in_memory, options
from workers.steps import Event
from workers.telemetry import Telemetry

pytestmark = pytest.mark.all


@pytest.mark.parametrize("cached", [1000, 0])
async def test_a_parent_with_sub_agents_is_one_whole_trace(
    stack: Stack, client: Client, telemetry: Telemetry, cached: int
) -> None:
    stack.script("boss", kids(2), say("all done"))
    stack.script("kid", call("delegate", goal="a smaller part", bundle="grandkid"), say("done"))
    stack.script("grandkid", call("write_file", path="a", content="a"), say("written"))
    stack.bundle("boss", ["delegate"], policy=ALLOW)
    stack.bundle("kid", ["delegate"], policy=ALLOW, limits={"depth": 2})
    stack.bundle("grandkid", ["write_file"])
    stack.serve_model()
    seen: list[Event] = []
    async with stack.worker(max_cached_workflows=cached, **options(telemetry, seen)):
        boss = await stack.start({"goal": "delegate it", "bundle": "boss"})
        for asked in await pending(client.get_workflow_handle(boss), 2, 60):
            handle = client.get_workflow_handle(asked["owner"])
            await handle.signal("rollover", {"by": "ann"})
            await handle.signal("approve", {"code": asked["code"], "by": "ann"})
        result = await result_of(client, boss)
        below = {run: await result_of(client, run) for run in await children(client, boss)}
    spans = in_memory()
    check_whole(spans, result, *below.values())
    assert len(below) == 4
    root = next(span for span in spans if not span.parent)
    agents = {span.id: span for span in spans if span.name.startswith("invoke_agent")}
    parents = Counter((span.name, agents[span.parent].name) for span in agents.values() if span.parent)
    assert root.name == "invoke_agent boss"
    assert parents["invoke_agent kid", "invoke_agent boss"] == 2
    assert parents["invoke_agent grandkid", "invoke_agent kid"] == 2
    by_run: dict[str, int] = Counter()
    for span in spans:
        by_run[span.attributes.get("gen_ai.conversation.id", "")] += span.attributes.get("perdure.cost_usd") is not None
    assert set(below) < set(by_run)


async def test_a_fork_has_a_whole_trace_of_its_own_that_is_linked_to_its_source(
    stack: Stack, client: Client, telemetry: Telemetry
) -> None:
    stack.script("forked", call("list_files", path="."), say("done"))
    stack.bundle("forked", ["list_files"])
    stack.serve_model()
    async with stack.worker(**options(telemetry, [])):
        source = await stack.start({"goal": "go on", "bundle": "forked"})
        first = await result_of(client, source)
        fork = await stack.start({"fork": {"workflow_id": source, "checkpoint": 1}})
        second = await result_of(client, fork)
    root, spans = _roots()[source], in_memory()
    check_whole([span for span in spans if span.trace == root[0]], first)
    mine = [span for span in spans if span.trace != root[0]]
    check_whole(mine, second)
    assert {span.name: span.links for span in mine if span.links} == {"run.fork": (root,)}


async def test_a_run_that_was_reset_stays_in_its_trace(stack: Stack, client: Client, telemetry: Telemetry) -> None:
    stack.script("reset", call("list_files", path="."), call("write_file", path="a", content="a"), say("done"))
    stack.bundle("reset", ["list_files", "write_file"])
    stack.serve_model()
    async with stack.worker(**options(telemetry, [])):
        run = await stack.start({"goal": "go on", "bundle": "reset"})
        handle = client.get_workflow_handle(run)
        before = (await pending(handle))[0]["code"]
        await reset(stack, run)
        asked = await until(lambda: _other(handle, before), 30, "the request of the new path")
        await handle.execute_update("approve", {"code": asked, "by": "ann"})
        result = await handle.result()
    spans = in_memory()
    assert Counter(span.name.partition(" ")[0] for span in spans)["chat"] == 5, "two turns that were left, and three"
    check_linked(spans)
    assert next(span for span in spans if not span.parent).attributes["perdure.turns"] == result["turns"] == 3


async def _other(handle: WorkflowHandle[Any, Any], before: str) -> str | None:
    try:
        codes = [each["code"] for each in await handle.query("pending")]
    except RPCError:  # it is on its way
        return None
    return next((code for code in codes if code != before), None)


async def test_the_tokens_of_a_handoff_are_in_the_trace(stack: Stack, client: Client, telemetry: Telemetry) -> None:
    stack.script("handed", say("one"), say("two"))
    stack.bundle("handed", [])
    stack.serve_model()
    async with stack.worker(**options(telemetry, [])):
        run = await stack.start({"goal": "go on", "bundle": "handed", "interactive": True})
        handle = client.get_workflow_handle(run)

        async def waits() -> Any:
            return "message" in (await handle.query("status"))["waiting_on"]

        await until(waits, 90, "the first answer")
        await handle.execute_update("handoff", {"by": "ann"})
        await handle.execute_update("message", {"text": "go on", "by": "ann"})
        await handle.execute_update("finish", {"by": "ann"})
        result = await handle.result()
    assert result["sessions"] == 2
    check_whole(in_memory(), result)


def _roots() -> dict[str, tuple[str, str]]:
    """The root span of each run's trace, as trace and id."""
    return {span.attributes["gen_ai.conversation.id"]: (span.trace, span.id) for span in in_memory() if not span.parent}
