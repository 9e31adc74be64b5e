"""A fork from every checkpoint of a run with approvals, effects, a handoff, a rollover and a child, counted outside."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from temporalio.client import Client

from tests.integration.effects.crashes import TOOLS, bundle, effects_stack
from tests.integration.effects.outside import Outside
from tests.integration.kit import Stack, call, pending, say
from tests.integration.test_forks import ASKED, approve_all, bodies, fork
from workflows.keys import child_id

pytestmark = pytest.mark.all


DELEGATED = 5
"""The turn that gives a part to a sub-agent."""


def turns(count: int) -> Iterator[dict[str, Any]]:
    """Reads, effects that are allowed and effects that are asked about, in turn, and a sub-agent; then the end."""
    for number in range(1, count):
        if number == DELEGATED:
            yield call("delegate", "a part", goal="do a part", bundle="kid")
            continue
        tool = ("reads", "keyed", "reviewed")[number % 3]
        yield call(tool, f"step {number}", label=f"{tool}-{number}")
    yield say("all done")


def counted(stack: Stack, outside: Outside) -> tuple[dict[str, int], dict[str, int]]:
    """What the servers were asked: the model by its two bundles, and the service outside."""
    asked = {f"{name} {turn}": n for name in ("long", "kid") for turn, n in stack.requests(name).items()}
    return asked, dict(outside.requests)


def added(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return dict(Counter(after) - Counter(before))


def expected(count: int, k: int) -> tuple[set[str], set[str]]:
    """The requests and the effects that a fork from k makes anew."""
    made = [turn["calls"][0]["arguments"] for turn in list(turns(count))[k:] if "calls" in turn]
    kid = {"kid 0", "kid 1"} if k < DELEGATED else set[str]()
    return {f"long {turn}" for turn in range(k, count)} | kid, {each.get("label", "kid") for each in made}


@pytest.mark.parametrize("count", [pytest.param(8, id="short"), pytest.param(30, id="long")])
async def test_a_fork_from_any_checkpoint_shares_the_prefix_and_repeats_nothing_of_it(
    stack: Stack, client: Client, count: int
) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "long", *turns(count), policy=ASKED, tools=[*TOOLS, "delegate"])
        bundle(stack, "kid", call("keyed", "a part", label="kid"), say("the part is done"))
        stack.serve_model()
        async with stack.worker():
            source = await stack.start({"goal": "act", "bundle": "long"})
            handle = client.get_workflow_handle(source)
            asked = list[dict[str, Any]]()
            first = (await pending(handle))[0]
            await handle.execute_update("handoff", {"by": "alice"})
            await handle.execute_update("rollover", {"by": "alice"})
            assert first["tool"] == "reviewed"
            handle = client.get_workflow_handle(source)
            whole = await approve_all(stack, handle, asked)
            assert whole["sessions"] == 2
            assert counted(stack, outside)[0].items() >= {"kid 0": 1, "kid 1": 1}.items()
            assert outside.effects["kid"] == 1
            prefix = bodies(stack, source)
            for k in range(count + 1):
                before = counted(stack, outside)
                forked = await fork(stack, client, source, k)
                seen = list[dict[str, Any]]()
                result = await approve_all(stack, forked, seen)
                assert result["status"] == "completed", (k, result)
                assert result["output"] == "all done"
                mine = bodies(stack, forked.id)
                shared = {name: body for name, body in prefix.items() if int(name.split("/")[1][:8]) <= k}
                assert shared.items() <= mine.items(), k
                after = counted(stack, outside)
                asked_turns, labels = expected(count, k)
                assert added(after[0], before[0]) == dict.fromkeys(asked_turns, 1), k
                assert added(after[1], before[1]) == dict.fromkeys(labels, 1), k
                tools = {"delegate" if label == "kid" else label.partition("-")[0] for label in labels}
                assert {one["tool"] for one in seen} == tools - {"reads"}, k
                assert result["parent"]["workflow_id"] == source
            [made] = [effect["operation_id"] for effect in whole["effects"] if effect["tool"] == "delegate"]
            await a_fork_of_the_child(stack, client, outside, child_id(made))
            await a_fork_of_an_edited_fork(stack, client, outside, source, count)


async def a_fork_of_the_child(stack: Stack, client: Client, outside: Outside, child: str) -> None:
    """From the checkpoint at which the sub-agent had acted: neither it nor its parent is asked or acts again."""
    before = counted(stack, outside)
    result = await approve_all(stack, await fork(stack, client, child, 1), [])
    assert (result["output"], result["parent"]["workflow_id"]) == ("the part is done", child)
    after = counted(stack, outside)
    assert (added(after[0], before[0]), added(after[1], before[1])) == ({"kid 1": 1}, {})


async def a_fork_of_an_edited_fork(stack: Stack, client: Client, outside: Outside, source: str, count: int) -> None:
    """An edit in the middle writes a context of its own; forks of that one share it, and find the answers in it."""
    at, edits = count - 1, [{"replace": 2, "content": "other words"}]
    edited = await fork(stack, client, source, at, edits=edits)
    assert (await approve_all(stack, edited, []))["status"] == "completed"
    entries = (stack.folder / "store" / "threads" / edited.id).glob("*/entries/*")
    assert any(b"other words" in path.read_bytes() and b'{"messages":' in path.read_bytes() for path in entries)
    for k, asked in ((at, {f"long {at}": 1}), (count, {})):
        before = counted(stack, outside)
        again = await fork(stack, client, edited.id, k)
        assert (await approve_all(stack, again, []))["output"] == "all done"
        after = counted(stack, outside)
        assert (added(after[0], before[0]), added(after[1], before[1])) == (asked, {})
        done = await stack.shell(f"perdure verify {again.id}")
        assert done.returncode == 0, done.stdout + done.stderr
