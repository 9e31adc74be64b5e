"""Forks of forks, of resets and of what is being deleted; with another bundle, and with what was spent."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities import copying
from activities.sources import Sources
from activities.store import open_store
from tests.integration.effects.crashes import bundle, effects_stack
from tests.integration.effects.test_past import replay_script, reset
from tests.integration.kit import Stack, call, pending, say, until
from tests.integration.test_forks import fork

pytestmark = pytest.mark.all


async def test_a_fork_of_a_fork_outlives_both_and_may_have_another_bundle_and_what_was_spent(
    stack: Stack, client: Client
) -> None:
    async with effects_stack(stack) as outside:
        script = [call("reads", label="a"), call("keyed", label="b"), call("reads", label="c"), say("done")]
        bundle(stack, "chain", *script)
        bundle(stack, "other", *(say("unused"), say("unused"), say("unused"), say("by the other")))
        stack.serve_model()
        async with stack.worker():
            first = client.get_workflow_handle(await stack.start({"goal": "act", "bundle": "chain"}))
            assert (await first.result())["turns"] == 4
            second = await fork(stack, client, first.id, 2, repeat="run")
            assert (await second.result())["turns"] == 2, "what the prefix has used does not count"
            third = await fork(stack, client, second.id, 3, bundle="other", spent="inherited")
            result = await third.result()
            assert (result["output"], result["turns"]) == ("by the other", 4)
            assert result["versions"]["bundle"] == "other@1"
            assert result["usage"]["requests"] == 4
            await open_store(stack.environment["PERDURE_STORE"]).delete(f"threads/{first.id}")
            await open_store(stack.environment["PERDURE_STORE"]).delete(f"threads/{second.id}")
            fourth = await fork(stack, client, third.id, 1, bundle="chain")
            asked = (await pending(fourth))[0]
            assert f"{first.id}." in asked["question"], "the effect of the first is known to the last"
            await fourth.signal("deny", {"code": asked["code"], "by": "alice"})
            assert (await fourth.result())["status"] == "completed"
            for run in (third.id, fourth.id):
                done = await stack.shell(f"perdure verify {run}")
                assert done.returncode == 0, done.stdout + done.stderr
        assert outside.effects["b"] == 1, "the only effect, once"
        assert dict(outside.requests) == {"a": 1, "b": 1, "c": 3}


async def test_after_a_reset_both_paths_can_be_forked(stack: Stack, client: Client) -> None:
    async with effects_stack(stack):
        bundle(stack, "paths", call("reads", label="old"), say("old end"))
        stack.serve_model()
        async with stack.worker():
            source = await stack.start({"goal": "act", "bundle": "paths"})
            handle = client.get_workflow_handle(source)
            old = await handle.result()
            replay_script(stack, "paths", call("reads", label="new"), say("new end"))
            await reset(stack, source)
            new = await client.get_workflow_handle(source).result()
            branch = old["checkpoint"]["key"].split("/")[-2]
            assert branch != new["checkpoint"]["key"].split("/")[-2]
            for k, more, output in ((2, {}, "new end"), (2, {"branch": branch}, "old end"), (1, {}, "new end")):
                forked = await fork(stack, client, source, k, **more)
                assert (await forked.result())["output"] == output
            done = await stack.shell(f"perdure replay {source} --json")
            assert done.returncode == 0, done.stderr
            assert len({one["run_id"] for one in json.loads(done.stdout)}) == 2, "the one before the reset, too"


async def test_a_source_that_is_deleted_meanwhile_gives_a_whole_fork_or_none(stack: Stack, client: Client) -> None:
    stack.script("gone", *(call("list_files", f"step {n}", path=".") for n in range(12)), say("done"))
    stack.bundle("gone", ["list_files"], limits={"same_calls": 50})
    stack.serve_model()
    store = open_store(stack.environment["PERDURE_STORE"])
    async with stack.worker():
        source = await stack.start({"goal": "act", "bundle": "gone"})
        await client.get_workflow_handle(source).result()
        forks = [await fork(stack, client, source, 11) for _ in range(3)]
        await store.delete(f"threads/{source}")
        ends = await asyncio.gather(*(each.result() for each in forks), return_exceptions=True)
        late = await fork(stack, client, source, 3)
        with pytest.raises(WorkflowFailureError):
            await late.result()
    for each, end in zip(forks, ends, strict=True):
        if isinstance(end, WorkflowFailureError):
            assert isinstance(end.cause, ApplicationError)
            assert end.cause.type == "InvalidInput", end.cause
        else:
            assert isinstance(end, dict), end
            done = await stack.shell(f"perdure verify {each.id}")
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("moment", "ends"), [("read", "gone"), ("halfway", "gone"), ("copied", "whole")])
async def test_a_source_whose_folder_is_deleted_during_the_fork(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch, moment: str, ends: str
) -> None:
    stack.script("gone", *(call("list_files", f"step {n}", path=".") for n in range(12)), say("done"))
    stack.bundle("gone", ["list_files"], limits={"same_calls": 50})
    stack.serve_model()
    link, whole, threads = copying._link, Sources.whole, stack.folder / "store" / "threads"
    source = f"{stack.name}-source"

    def linked(top: Path, pairs: Sequence[copying.Pair]) -> list[str]:
        half = len(pairs) // 2 if moment == "halfway" else len(pairs) if moment == "copied" else 0
        missing = link(top, pairs[:half])
        if moment != "read":
            shutil.rmtree(threads / source)
        return [*missing, *link(top, pairs[half:])]

    async def read(*given: Any) -> Any:
        if moment == "read":
            shutil.rmtree(threads / source)
        return await whole(*given)

    async with stack.worker():
        await stack.start({"goal": "act", "bundle": "gone"}, source)
        await client.get_workflow_handle(source).result()
        monkeypatch.setattr(copying, "_link", linked)
        monkeypatch.setattr(Sources, "whole", read)
        forked = await fork(stack, client, source, 11)
        end: Any = (await asyncio.gather(asyncio.wait_for(forked.result(), 120), return_exceptions=True))[0]
    assert not (threads / source).exists()
    if ends == "whole":
        assert (end["output"], stack.requests("gone")["12"]) == ("done", 2)
        done = await stack.shell(f"perdure verify {forked.id}")
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert isinstance(end, WorkflowFailureError)
    assert isinstance(end.cause, ApplicationError)
    assert end.cause.type == "InvalidInput", end.cause
    assert stack.requests("gone")["12"] == 1, "nothing of the fork was run"


async def test_a_fork_of_the_final_answer_ends_with_it_or_goes_on_with_what_is_said(
    stack: Stack, client: Client
) -> None:
    stack.script("end", say("the answer"), {**say("more"), "expect": "and then?"})
    stack.bundle("end", [])
    stack.serve_model()
    async with stack.worker():
        source = await stack.start({"goal": "act", "bundle": "end"})
        await client.get_workflow_handle(source).result()
        same = await (await fork(stack, client, source, 1)).result()
        assert (same["output"], same["turns"], same["usage"]["requests"]) == ("the answer", 0, 0)
        said = await fork(stack, client, source, 1, edits=[{"append": "user", "content": "and then?"}])
        assert (await said.result())["output"] == "more"
        talk = await fork(stack, client, source, 1, interactive=True)
        await until(lambda: _idle(talk))
        await talk.signal("message", {"text": "and then?", "by": "ann"})
        await until(lambda: _turns(talk, 1))
        await talk.signal("finish", {"by": "ann"})
        assert (await talk.result())["output"] == "more"


async def _idle(handle: WorkflowHandle[Any, Any]) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def _turns(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    return bool((await handle.query("status"))["turn"] >= count)
