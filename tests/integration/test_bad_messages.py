"""Messages that are not exactly a decision, sent as people and scripts send them: through the real `temporal` CLI.

None of them may run the tool, none may be lost in silence, none may stick or fail the run.
"""

import asyncio
import json
import subprocess
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from tests.integration.kit import Stack, call, pending, say, until
from tests.integration.not_a_yes import NOT_A_YES, PAST_THE_CLI, STOPPED_BY_THE_CLI


async def throw(stack: Stack, how: str, run: str, name: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    verb = ("update", "execute") if how == "update" else ("signal",)
    return await stack.temporal("workflow", *verb, "-w", run, "--name", name, *arguments)


def prepare(stack: Stack, **tables: Any) -> None:
    """A bundle whose model writes a file, for which there must be a yes. To be called before a worker starts."""
    stack.script("asking", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("asking", ["write_file"], **tables)
    stack.serve_model()


async def asking(stack: Stack, client: Client) -> tuple[WorkflowHandle[Any, Any], str, str]:
    """A run that waits for that yes: its handle, its id and the code."""
    run = await stack.start({"goal": "write", "bundle": "asking"})
    handle = client.get_workflow_handle(run)
    return handle, run, (await pending(handle, 1, 90))[0]["code"]


async def task_failures(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [
        event.workflow_task_failed_event_attributes.failure.message
        async for event in handle.fetch_history_events()
        if event.HasField("workflow_task_failed_event_attributes")
    ]


async def test_what_is_not_exactly_a_yes_runs_nothing_and_sticks_nothing(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        limit = asyncio.Semaphore(4)

        async def one(how: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
            async with limit:
                filled = [argument.replace("CODE", code) for argument in arguments]
                return await throw(stack, how, run, "approve", filled)

        refused = await asyncio.gather(*(one("update", arguments) for arguments in NOT_A_YES.values()))
        for name, done in zip(NOT_A_YES, refused, strict=True):
            assert done.returncode == 1, f"{name}: {done.stdout}"
            assert "temporal workflow update execute" in done.stderr or "stays open" in done.stderr, (
                f"{name}: {done.stderr}"
            )
        sent = await asyncio.gather(*(one("signal", arguments) for arguments in NOT_A_YES.values()))
        assert [done.returncode for done in sent] == [0] * len(sent)

        async def recorded() -> Any:
            found = [each for each in await handle.query("decisions") if each["source"]["via"] == "signal"]
            return found if len(found) == len(NOT_A_YES) else None

        log = await until(recorded, what="a line of the decision log for every signal")
        assert {each["decision"] for each in log} == {"rejected"}
        assert all(each["reason"] for each in log)
        assert [each["code"] for each in await handle.query("pending")] == [code]
        assert await task_failures(handle) == []
        assert (await stack.send("update", run, "approve", {"code": code, "by": "alice"})).returncode == 0
        result = await handle.result()
    assert result["status"] == "completed"
    assert [effect["approved_by"] for effect in result["effects"]] == ["alice"]
    assert result["total"] == {}


async def test_payloads_of_other_programs_are_no_yes_either(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, _, code = await asking(stack, client)
        for name, payload in PAST_THE_CLI.items():
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update("approve", RawValue(payload))
            assert "temporal workflow update execute" in str(refused.value.cause), name
            await handle.signal("approve", RawValue(payload))

        async def recorded() -> Any:
            return len(await handle.query("decisions")) == len(PAST_THE_CLI)

        await until(recorded, what="a line of the decision log for every signal")
        assert [each["code"] for each in await handle.query("pending")] == [code]
        assert await task_failures(handle) == []
        await handle.terminate()


async def test_what_the_cli_itself_refuses_never_reaches_the_run(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        for how in ("update", "signal"):
            for arguments in STOPPED_BY_THE_CLI:
                filled = [argument.replace("CODE", code) for argument in arguments]
                assert (await throw(stack, how, run, "approve", filled)).returncode == 1, filled
        assert [each["code"] for each in await handle.query("pending")] == [code]
        assert await handle.query("decisions") == []
        await handle.terminate()


async def test_a_string_that_holds_the_object_counts_as_the_object(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        text = json.dumps(json.dumps({"code": code.lower(), "by": " 日本 O'Neil 🙂 "}, ensure_ascii=False))
        done = await throw(stack, "signal", run, "approve", ["--input", text])
        assert done.returncode == 0, done.stderr
        result = await handle.result()
    assert [effect["approved_by"] for effect in result["effects"]] == ["日本 O'Neil 🙂"]


async def test_every_other_message_refuses_what_is_not_exactly_it(stack: Stack, client: Client) -> None:
    bad: dict[str, list[str]] = {
        "deny": ["{}", '{"code": "CODE"}', '{"code": "CODE", "by": "a", "reason": 5}'],
        "answer": ['{"code": "CODE", "value": "x", "by": "a"}', '{"code": "CODE", "by": "a"}'],
        "resolve": [
            '{"code": "CODE", "outcome": "happened", "by": "a"}',
            '{"code": "CODE", "outcome": "yes", "by": "a"}',
        ],
        "message": [
            "{}",
            '"hello"',
            '{"text": "", "by": "a"}',
            '{"text": " \\n", "by": "a"}',
            '{"text": 5, "by": "a"}',
        ],
        "pause": ["{}", "null", '{"by": "a", "until": 5}'],
        "resume": ["{}", "true"],
        "budget": [
            *('{"by": "a"}', '{"turns": -1, "by": "a"}', '{"turns": "9", "by": "a"}', '{"turns": true, "by": "a"}'),
            *('{"cost_usd": true, "by": "a"}', '{"cost_usd": "5", "by": "a"}', '{"cost_usd": 1e999, "by": "a"}'),
            *('{"turns": 1.5, "by": "a"}', '{"turns": ' + "9" * 400 + ', "by": "a"}', '{"seconds": null, "by": "a"}'),
            '{"cost_usd": ' + "9" * 400 + ', "by": "a"}',
        ],
        "finish": ["{}", '{"by": "a"}'],
        "rollover": ["{}", "5"],
    }
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        before = await handle.query("status")
        count = 0
        for name, inputs in bad.items():
            for text in inputs:
                arguments = ["--input", text.replace("CODE", code)]
                update = await throw(stack, "update", run, name, arguments)
                assert update.returncode == 1, f"{name} {text[:80]}: {update.stdout}"
                assert (await throw(stack, "signal", run, name, arguments)).returncode == 0
                count += 1

        async def recorded() -> Any:
            return len(await handle.query("decisions")) == count

        await until(recorded, what="a line of the decision log for every signal")
        after = await handle.query("status")
        assert {k: v for k, v in after.items() if k != "budget"} == {k: v for k, v in before.items() if k != "budget"}
        assert after["budget"]["limit"] == before["budget"]["limit"]
        assert await task_failures(handle) == []
        await handle.terminate()


async def test_unknown_names_are_refused_or_recorded(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        yes = ["--input", json.dumps({"code": code, "by": "a"})]
        for name in ("Approve", "approved", "aprove", "日本", "__temporal", "handle'; rm -rf x"):
            update = await throw(stack, "update", run, name, yes)
            assert update.returncode == 1, name
            await throw(stack, "signal", run, name, yes)
        named = await throw(stack, "update", run, "aprove", yes)
        assert "approve" in named.stderr.replace("aprove", "")
        log = await until(lambda: handle.query("decisions"))
        assert "'Approve'" in log[0]["reason"]
        assert "approve" in log[0]["reason"]
        assert [each["code"] for each in await handle.query("pending")] == [code]
        assert await task_failures(handle) == []
        await handle.terminate()


async def test_queries_refuse_bad_input_and_answer_small_json(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, _ = await asking(stack, client)
        for text in ('{"last": -1}', '{"last": "5"}', '{"last": true}', "[]", "5", '"x"', '{"first": 1}'):
            done = await stack.temporal("workflow", "query", "-w", run, "--type", "transcript", "--input", text)
            assert done.returncode == 1, text
            assert "last" in done.stderr, done.stderr
        for text in ('{"last": 1}', "null", "{}", '"{\\"last\\": 1}"', '{"last": 99999}'):
            done = await stack.temporal("workflow", "query", "-w", run, "--type", "transcript", "--input", text)
            assert done.returncode == 0, f"{text}: {done.stderr}"
        assert await handle.query("decisions", {"last": 0}) == []
        assert await task_failures(handle) == []
        await handle.terminate()


async def test_after_the_end_a_message_is_told_so(stack: Stack, client: Client) -> None:
    prepare(stack)
    async with stack.worker():
        handle, run, code = await asking(stack, client)
        await stack.send("update", run, "deny", {"code": code, "by": "alice"})
        await handle.result()
        for how in ("update", "signal"):
            late = await stack.send(how, run, "approve", {"code": code, "by": "alice"})
            assert late.returncode == 1
            assert "already completed" in late.stderr
        with pytest.raises(RPCError, match="not found"):
            await client.get_workflow_handle("no-such-run").signal("approve", {"code": code, "by": "a"})
