"""Several calls of one turn, each with its own fate; denials; edits."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateStage

from tests.integration.kit import Stack, call, calls, pending, say, until


async def send(handle: WorkflowHandle[Any, Any], name: str, **body: Any) -> Any:
    """An update; its answer, or the text of its refusal."""
    try:
        return (await handle.execute_update(name, {"by": "alice", **body}))["status"]
    except WorkflowUpdateFailedError as error:
        return str(error.cause)


def write(name: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": f"{name}.txt", "content": name}


async def by_path(handle: WorkflowHandle[Any, Any], count: int) -> dict[str, dict[str, Any]]:
    return {item["arguments"]["path"].removesuffix(".txt"): item for item in await pending(handle, count)}


async def test_one_turn_of_all_fates(stack: Stack, client: Client) -> None:
    """Auto, approved, denied, edited, expired, malformed, denied by policy: one answer each, in call order."""
    turn = calls(write("auto"), write("yes"), write("no"), write("edit"), write("late"), write("never"))
    turn["calls"].append({"tool": "write_file", "arguments_text": '{"path": "x'})
    turn["calls"] += calls(write("hold"))["calls"]  # keeps the run open until the late answer was sent
    stack.script("fates", turn, say("done"))
    policy = [
        {"tool": "write_file", "when": "arguments.path == 'auto.txt'", "decision": "allow"},
        {"tool": "write_file", "when": "arguments.path == 'never.txt'", "decision": "deny", "reason": "not that"},
        {"tool": "write_file", "when": "arguments.path == 'late.txt'", "decision": "ask", "timeout": "10s"},
    ]
    stack.bundle("fates", ["write_file"], policy=policy)
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "fates"})
        handle = client.get_workflow_handle(run)
        asked = await by_path(handle, 4)
        edit = {"path": "edited.txt", "content": "by a person"}
        refused = await send(
            handle, "approve", code=asked["edit"]["code"], arguments={"path": "never.txt", "content": ""}
        )
        assert "denied by policy" in refused
        assert "stays open" in refused
        assert await send(handle, "approve", code=asked["edit"]["code"], arguments=edit) == "edited"
        assert await send(handle, "deny", code=asked["no"]["code"], reason="too dear") == "denied"
        assert await send(handle, "approve", code=asked["yes"]["code"]) == "approved"
        assert await send(handle, "approve", code=asked["yes"]["code"], by="bob") == "already approved"
        assert "already approved by alice" in await send(handle, "deny", code=asked["yes"]["code"])
        assert "already edited" in await send(handle, "approve", code=asked["edit"]["code"])
        assert await send(handle, "approve", code=asked["edit"]["code"], arguments=edit) == "already edited"
        await until(lambda: _left(handle, 1), what="the deadline")
        expired = next(each for each in await handle.query("decisions") if each["decision"] == "expired")
        assert "already expired" in await send(handle, "approve", code=expired["code"])
        assert await send(handle, "deny", code=asked["hold"]["code"], reason="enough") == "denied"
        result = await handle.result()
        answers = (await handle.query("transcript"))[0]["answers"]
        log = await handle.query("decisions")
    assert {item["path"] for item in result["artifacts"]} == {"auto.txt", "yes.txt", "edited.txt"}
    assert sorted(answers) == [f"1.{index}" for index in range(8)]
    assert "too dear" in answers["1.2"]
    assert "edited.txt" in answers["1.3"]
    assert "expired" in answers["1.4"]
    assert "not that" in answers["1.5"]
    assert "malformed" in answers["1.6"]
    assert "enough" in answers["1.7"]
    decided = {(each["decision"], (each["arguments_before"] or {}).get("path")) for each in log if each["code"]}
    assert decided >= {
        ("approved", "yes.txt"),
        ("denied", "no.txt"),
        ("edited", "edit.txt"),
        ("expired", "late.txt"),
    }
    assert [each["arguments_after"] for each in log if each["decision"] == "edited"] == [edit]
    assert [each["source"]["via"] for each in log if each["decision"] == "expired"] == ["timer"]
    assert [each["decision"] for each in log if each["source"]["via"] == "policy"] == ["denied"]
    prints = {effect["fingerprint"] for effect in result["effects"]}
    assert asked["yes"]["fingerprint"] in prints
    assert asked["edit"]["fingerprint"] not in prints  # who changes an argument has a new action
    told = stack.requests("fates")
    assert told == {"0": 1, "1": 1}


async def _left(handle: WorkflowHandle[Any, Any], count: int) -> bool:
    return len(await handle.query("pending")) == count


async def test_a_batch_of_denials_gives_the_model_its_turn_and_repeats_are_denied_by_themselves(
    stack: Stack, client: Client
) -> None:
    stack.script("no", calls(write("a"), write("b")), calls(write("b"), write("c")), calls(write("a")), say("never"))
    stack.bundle("no", ["write_file"], limits={"denials": 5})
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "no"})
        handle = client.get_workflow_handle(run)
        for item in (await by_path(handle, 2)).values():
            assert await send(handle, "deny", code=item["code"], reason="no") == "denied"

        async def third() -> Any:
            return [item for item in await handle.query("pending") if item["arguments"]["path"] == "c.txt"]

        only = await until(third)
        assert [item["arguments"]["path"] for item in await handle.query("pending")] == ["c.txt"]
        await send(handle, "deny", code=only[0]["code"])
        result = await handle.result()
    assert result["status"] == "denied"
    assert "5" in result["reason"]
    assert result["effects"] == []
    assert [each["source"]["via"] for each in result["decisions"]] == ["update", "update", "policy", "update", "policy"]


async def test_edits_are_judged_and_a_signal_waits_for_the_verdict(stack: Stack, client: Client) -> None:
    stack.script("edit", calls(write("a"), write("b")), say("done"))
    stack.bundle("edit", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "edit"})
        handle = client.get_workflow_handle(run)
        asked = await by_path(handle, 2)
        bad: list[dict[str, Any]] = [
            {},
            {"path": "x"},
            {"path": 5, "content": ""},
            {"path": "x", "content": "", "mode": 1},
        ]
        for arguments in bad:
            refused = await send(handle, "approve", code=asked["a"]["code"], arguments=arguments)
            assert "stays open" in refused, arguments
        edit = await handle.start_update(
            "approve",
            {"code": asked["a"]["code"], "by": "alice", "arguments": {"path": "z.txt", "content": "z"}},
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
        )
        await handle.signal("deny", {"code": asked["a"]["code"], "by": "mallory"})
        assert (await edit.result())["status"] == "edited"
        assert await send(handle, "deny", code=asked["b"]["code"]) == "denied"
        result = await handle.result()
    assert {item["path"] for item in result["artifacts"]} == {"z.txt"}
    refused_log = [each for each in result["decisions"] if each["decision"] == "rejected"]
    assert len(refused_log) == len(bad) + 1
    assert refused_log[-1]["source"]["via"] == "signal"
    assert "already edited by alice" in refused_log[-1]["reason"]


async def test_codes_of_other_runs_and_kinds_are_refused(stack: Stack, client: Client) -> None:
    stack.script("two", calls(write("a"), ("ask_human", {"question": "Which?"})), say("done"))
    stack.bundle("two", ["write_file", "ask_human"])
    stack.serve_model()
    async with stack.worker():
        runs = [await stack.start({"goal": "write", "bundle": "two"}) for _ in range(2)]
        one, other = (client.get_workflow_handle(run) for run in runs)
        mine = {item["kind"]: item for item in await pending(one, 2)}
        theirs = {item["kind"]: item for item in await pending(other, 2)}
        refused = await send(one, "approve", code=theirs["approval"]["code"])
        assert f"no request has the code {theirs['approval']['code']}" in refused
        assert mine["approval"]["code"] in refused  # the open ones are listed, with their commands
        assert "is of the kind question" in await send(one, "approve", code=mine["question"]["code"])
        assert "is of the kind approval" in await send(one, "answer", code=mine["approval"]["code"], value="x")
        said = await send(one, "resolve", code=mine["approval"]["code"], outcome="happened")
        assert "is of the kind approval" in said
        assert "must be a text" in await send(one, "answer", code=mine["question"]["code"], value=5)
        assert await send(one, "answer", code=mine["question"]["code"], value="this") == "answered"
        assert await send(one, "answer", code=mine["question"]["code"], value="this") == "already answered"
        assert "already answered" in await send(one, "answer", code=mine["question"]["code"], value="that")
        for handle in (one, other):
            await handle.terminate()


@pytest.mark.parametrize("how", ["one worker", "kills"])
async def test_answers_in_any_order_land_on_their_calls(stack: Stack, client: Client, how: str) -> None:
    """Five gated calls, answered in another order, with a rollover or a killed worker between."""
    names = ["a", "b", "c", "d", "e"]
    stack.script("five", calls(*(write(name) for name in names)), say("done"))
    stack.bundle("five", ["write_file"])
    stack.serve_model()
    run = await stack.start({"goal": "write", "bundle": "five"})
    handle = client.get_workflow_handle(run)
    fates = {"d": "approve", "a": "deny", "e": "edit", "c": "deny", "b": "approve"}
    async with stack.worker(max_cached_workflows=0 if how == "kills" else 1000):
        asked = await by_path(handle, 5)
        for name, fate in fates.items():
            await _decide(handle, asked[name]["code"], name, fate)
            if name in ("a", "c"):
                await handle.execute_update("rollover", {"by": "ops"})
        result = await handle.result()
    landed(result, fates)


async def _decide(handle: WorkflowHandle[Any, Any], code: str, name: str, fate: str) -> None:
    body: dict[str, Any] = {"code": code, "by": name}
    if fate == "edit":
        body["arguments"] = {"path": f"{name}.txt", "content": f"edited {name}"}
    await handle.execute_update("deny" if fate == "deny" else "approve", body)


def landed(result: dict[str, Any], fates: dict[str, str]) -> None:
    """Each decision is on its call, and on no other."""
    wrote = {}
    for effect in result["effects"]:
        request = effect["canonical_request"]
        request = json.loads(request) if isinstance(request, str) else request
        arguments = request["arguments"]
        wrote[arguments["path"].removesuffix(".txt")] = (arguments["content"], effect["approved_by"], effect["status"])
    assert wrote == {
        name: (f"edited {name}" if fate == "edit" else name, name, "COMMITTED")
        for name, fate in fates.items()
        if fate != "deny"
    }
    words = {"approve": "approved", "deny": "denied", "edit": "edited"}
    log = {each["arguments_before"]["path"].removesuffix(".txt"): each for each in result["decisions"]}
    assert {name: each["decision"] for name, each in log.items()} == {n: words[f] for n, f in fates.items()}
    assert all(each["by"] == name for name, each in log.items())


async def test_an_expired_call_asks_anew_when_the_model_repeats_it(stack: Stack, client: Client) -> None:
    stack.script("again", call("write_file", path="a.txt", content="a"), calls(write("a")), say("done"))
    stack.bundle("again", ["write_file"], policy=[{"tool": "write_file", "decision": "ask", "timeout": "2s"}])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "again"})
        handle = client.get_workflow_handle(run)
        codes = [(await pending(handle))[0]["code"]]

        async def another() -> Any:
            return [item for item in await handle.query("pending") if item["code"] not in codes]

        codes.append((await until(another))[0]["code"])
        result = await handle.result()
    assert [each["code"] for each in result["decisions"] if each["decision"] == "expired"] == codes


async def test_a_decision_sent_in_time_that_nobody_handled_in_time_is_late(stack: Stack, client: Client) -> None:
    """The run's own clock counts when a message is handled; signals of one task come before its timers."""
    stack.script("late", call("write_file", path="a.txt", content="a"), say("done"))
    stack.bundle("late", ["write_file"], policy=[{"tool": "write_file", "decision": "ask", "timeout": "12s"}])
    stack.serve_model()
    run = await stack.start({"goal": "write", "bundle": "late"})
    handle = client.get_workflow_handle(run)
    async with stack.worker():
        item = (await pending(handle))[0]
    await handle.signal("approve", {"code": item["code"], "by": "alice"})
    await asyncio.sleep(max(0.0, (datetime.fromisoformat(item["deadline"]) - datetime.now(UTC)).total_seconds() + 1))
    async with stack.worker():
        result = await handle.result()
    assert [(each["decision"], each["code"]) for each in result["decisions"]] == [
        ("rejected", item["code"]),
        ("expired", item["code"]),
    ]
    assert "expired at" in result["decisions"][0]["reason"]
    assert result["effects"] == []
