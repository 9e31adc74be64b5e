"""Forks, from outside: the prefix is shared and not run again, and the past's effects are known."""

import asyncio
import itertools
import json
from typing import Any

from temporalio.client import Client, WorkflowHandle

from activities.store import open_store
from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import replay_script
from tests.integration.kit import Stack, call, pending, say, until

COUNT = itertools.count()
ASKED = [{"tool": "reviewed", "decision": "ask"}, {"tool": "*", "decision": "allow"}]


async def approve_all(stack: Stack, handle: WorkflowHandle[Any, Any], seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Says yes to everything until the run ends; gives its result."""
    result = asyncio.ensure_future(handle.result())
    while not result.done():
        for asked in await handle.query("pending"):
            if all(asked["code"] != one["code"] for one in seen):
                seen.append(asked)
                await handle.signal("approve", {"code": asked["code"], "by": "alice"})
        await asyncio.wait({result}, timeout=0.1)
    found: dict[str, Any] = await result
    return found


async def fork(stack: Stack, client: Client, source: str, checkpoint: int, **more: Any) -> WorkflowHandle[Any, Any]:
    names = {"edits": "edits", "branch": "branch", "spent": "budget"}
    own = {name: more.pop(key) for key, name in names.items() if key in more}
    name = f"{source.partition('.')[0]}-fork-{next(COUNT)}"
    await stack.start({"fork": {"workflow_id": source, "checkpoint": checkpoint, **own}, **more}, name)
    return client.get_workflow_handle(name)


def bodies(stack: Stack, run: str) -> dict[str, bytes]:
    """Every checkpoint of a run, by branch and number."""
    top = stack.folder / "store" / "threads" / run
    return {"/".join(path.parts[-2:]): path.read_bytes() for path in top.glob("*/checkpoints/*/*.json")}


async def test_a_step_that_repeats_an_effect_of_the_source_asks_and_names_it(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "again", call("keyed", label="k"), call("looked", label="l"), say("done"))
        stack.serve_model()
        async with stack.worker():
            source = await stack.start({"goal": "act", "bundle": "again"})
            made = (await client.get_workflow_handle(source).result())["effects"]
            assert [effect["tool"] for effect in made] == ["keyed", "looked"]
            forked = await fork(stack, client, source, 1)
            asked = (await pending(forked))[0]
            assert made[1]["operation_id"] in asked["question"], asked
            assert dict(outside.effects) == {"k": 1, "l": 1}
            done = await stack.send("update", forked.id, "deny", {"code": asked["code"], "by": "alice"})
            assert done.returncode == 0, done.stderr
            result = await forked.result()
            # other words for what the source did after the fork: that is asked about too
            replay_script(stack, "again", call("keyed", label="k"), call("looked", label="other"), say("done"))
            worded = await fork(stack, client, source, 1)
            asked = (await pending(worded))[0]
            assert made[1]["operation_id"] in asked["question"], asked
            await worded.signal("deny", {"code": asked["code"], "by": "alice"})
            await worded.result()
            # and all of it is known when the source is gone
            await open_store(stack.environment["PERDURE_STORE"]).delete(f"threads/{source}")
            orphan = await fork(stack, client, forked.id, 1)
            asked = (await pending(orphan))[0]
            assert made[1]["operation_id"] in asked["question"], asked
            await orphan.signal("deny", {"code": asked["code"], "by": "alice"})
            await orphan.result()
        assert dict(outside.effects) == {"k": 1, "l": 1}
    assert result["parent"] == {
        "workflow_id": source,
        "thread": result["parent"]["thread"],
        "checkpoint": 1,
        "sha256": result["parent"]["sha256"],
    }
    memo = await (await forked.describe()).memo()
    assert memo["perdure_parent"] == result["parent"]


async def test_edits_change_the_context_of_the_fork_and_nothing_of_the_source(stack: Stack, client: Client) -> None:
    stack.script("edited", call("list_files", "look", path="."), call("list_files", "again", path="."), say("old"))
    stack.bundle("edited", ["list_files"])
    stack.serve_model()
    async with stack.worker():
        source = await stack.start({"goal": "find it", "bundle": "edited"})
        await client.get_workflow_handle(source).result()
        before = bodies(stack, source)
        replay_script(
            stack,
            "edited",
            say("unused"),
            {**say("new"), "expect": "take the second"},
        )
        edits = [
            {"goal": "find the other one"},
            {"tool_result": "1.0", "content": "a.txt b.txt"},
            {"append": "user", "content": "take the second"},
        ]
        forked = await fork(stack, client, source, 1, edits=edits)
        result = await forked.result()
        assert result["output"] == "new"
        assert (await forked.query("status"))["goal"] == "find the other one"
        dropped = await fork(stack, client, source, 2, edits=[{"drop": 3}, *edits])
        assert (await dropped.result())["output"] == "new"
        assert bodies(stack, source) == before
    assert stack.model is not None
    assert stack.model.stats()["refused"] == []


async def test_a_run_that_is_still_open_is_forked_twice_at_once_and_settles_what_it_settled(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        both = {"calls": [*call("reads", label="r")["calls"], *call("reviewed", label="e")["calls"]], "text": "two"}
        bundle(stack, "open", both, say("done"), policy=ASKED)
        stack.serve_model()
        async with stack.worker():
            source = await stack.start({"goal": "act", "bundle": "open"})
            handle = client.get_workflow_handle(source)
            await pending(handle)
            await until(lambda: outside.requests["r"] == 1)
            await until(lambda: _answered(handle, "1.0"))
            (start,) = (stack.folder / "store" / "threads" / source).glob("*/checkpoints")
            names = source, f"{source}.{start.parent.name}"
            forks = await asyncio.gather(*(fork(stack, client, name, 1) for name in names))
            for each in forks:
                asked = (await pending(each))[0]
                assert asked["operation_id"].startswith(f"{each.id}.")
                await each.signal("approve", {"code": asked["code"], "by": "bob"})
                assert (await each.result())["status"] == "completed"
            assert outside.requests["r"] == 1, "a settled answer is kept"
            asked = (await pending(handle))[0]
            await handle.signal("deny", {"code": asked["code"], "by": "bob"})
            await handle.result()
        assert outside.effects["e"] == 2
    assert stack.requests("open") == {"0": 1, "1": 3}


async def _opened(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether it has taken over what was before."""
    return (await handle.query("status"))["head"] is not None and bool(await (await handle.describe()).memo())


async def _answered(handle: WorkflowHandle[Any, Any], call_id: str) -> bool:
    steps = await handle.query("transcript")
    return bool(steps) and call_id in steps[-1]["answers"]


async def test_the_workspace_of_a_fork_is_as_it_was_and_outlives_the_source(stack: Stack, client: Client) -> None:
    script = [call("write_file", path=f"{n}.txt", content=f"content {n}") for n in range(3)]
    stack.script("files", *script, say("done"))
    stack.bundle("files", ["write_file", "read_file"], policy=[{"tool": "write_file", "decision": "allow"}])
    stack.serve_model()
    async with stack.worker():
        source = await stack.start({"goal": "write", "bundle": "files"})
        await client.get_workflow_handle(source).result()
        replay_script(
            stack,
            "files",
            *(say("unused"), say("unused")),
            call("read_file", path="1.txt"),
            {**say("read"), "expect": "content 1"},
        )
        forked = await fork(stack, client, source, 2)
        await until(lambda: len(bodies(stack, forked.id)) >= 3, what="the copies")
        await until(lambda: _opened(forked))
        await open_store(stack.environment["PERDURE_STORE"]).delete(f"threads/{source}")
        result = await forked.result()
    assert (result["status"], result["output"]) == ("completed", "read")
    assert [file["path"] for file in result["artifacts"]] == ["0.txt", "1.txt"]
    done = await stack.shell(f"perdure verify {forked.id} && perdure files {forked.id} 1.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("content 1")


async def test_the_command_reports_before_anything_runs(stack: Stack, client: Client) -> None:
    async with effects_stack(stack) as outside:
        bundle(stack, "told", call("keyed", label="a"), call("looked", label="b"), say("done"))
        stack.serve_model()
        async with stack.worker():
            source = await stack.start({"goal": "act", "bundle": "told"})
            await client.get_workflow_handle(source).result()
            told = await stack.shell(f"perdure fork {source}@1 --json")
            assert told.returncode == 0, told.stderr
            report = json.loads(told.stdout)
            assert report["started"] is None
            assert [effect["tool"] for effect in report["inherited"]] == ["keyed"]
            (after,) = report["after"]
            assert (after["tool"], after["status"]) == ("looked", "COMMITTED")
            assert (after["undo"], after["why_not"]) == (
                None,
                f"{source} has ended, and only a run that is open undoes what it did",
            )
            assert report["versions"]["then"] == report["versions"]["now"]
            refused = await stack.shell(f"perdure fork {source}@9 --json || echo code $?")
            assert "code 1" in refused.stdout
            assert "9" in refused.stderr
            begun = await stack.shell(f"perdure fork {source}@2 --yes --id {source}-b --edit '{{\"drop\": 3}}' --json")
            assert begun.returncode == 0, begun.stderr
            assert json.loads(begun.stdout)["started"] == f"{source}-b"
            stack.runs.append(f"{source}-b")
            handle = client.get_workflow_handle(f"{source}-b")
            asked = (await pending(handle))[0]
            again = await stack.shell(f"perdure fork {source}@2 --yes --id {source}-b --json")
            assert again.returncode == 1
            assert f"there is a run {source}-b already" in again.stderr
            assert "Traceback" not in again.stderr
            await handle.signal("deny", {"code": asked["code"], "by": "alice"})
            await handle.result()
        assert dict(outside.effects) == {"a": 1, "b": 1}
