"""What was approved is what runs: a deploy that changes a tool while its call waits makes it ask again."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

from activities.effects import lease_of
from tests.integration.effects.test_past import replay_script, reset
from tests.integration.kit import ROOT, Stack, call, kill, pending, say, until

TOOL = '''
from activities.tools import tool

@tool(effect="once")
async def pay(to: str, amount: int = {amount}) -> str:
    """{text}"""
    with open("{folder}/paid", "a") as file:
        print(to, amount, file=file)
    return f"paid {{amount}} to {{to}}"
'''
SLOW = 90
CRASHING = "tests.integration.effects.crashing_worker"


def deploy(stack: Stack, folder: Path, amount: int, text: str, module: str = "scripts.cli", **more: str) -> Any:
    """A worker process with the tool as it is now."""
    (folder / "tools_of_this_test.py").write_text(TOOL.format(amount=amount, text=text, folder=folder))
    more |= {"PERDURE_TOOLS": "tools_of_this_test", "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    return stack.start_worker(module=module, **more)


@pytest.mark.all
async def test_a_default_or_a_description_that_changed_meanwhile_asks_again(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    stack.script("pay", call("pay", to="bob"), say("done"))
    stack.bundle("pay", ["pay"])
    stack.serve_model()
    codes: list[str] = []
    run = await stack.start({"goal": "pay", "bundle": "pay"})
    handle = client.get_workflow_handle(run)
    worker = deploy(stack, tmp_path, 1, "Pay.")
    asked = (await pending(handle, 1, SLOW))[0]
    assert asked["arguments"] == {"to": "bob", "amount": 1}
    for amount in ("5", True, 5.5):  # a person's edit runs as it was written, or not at all
        edit = {"code": asked["code"], "by": "alice", "arguments": {"to": "bob", "amount": amount}}
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("approve", edit)
        assert "amount: it is not of type" in str(refused.value.cause)

    async def another() -> Any:
        return [item for item in await handle.query("pending") if item["code"] not in codes]

    for amount, text in ((1000, "Pay."), (1000, "Pay, and tip.")):
        kill(worker)
        worker = deploy(stack, tmp_path, amount, text)
        codes.append(asked["code"])
        await handle.execute_update("approve", {"code": asked["code"], "by": "alice"})
        before, asked = asked, (await until(another, SLOW))[0]
        assert asked["arguments"] == {"to": "bob", "amount": 1000}
        assert "changed" in asked["question"]
        assert asked["fingerprint"] != before["fingerprint"]
    await handle.execute_update("approve", {"code": asked["code"], "by": "bob"})
    result = await handle.result()
    assert [(effect["approved_by"], effect["fingerprint"]) for effect in result["effects"]] == [
        ("bob", asked["fingerprint"])
    ]
    assert "paid 1000 to bob" in str(result["effects"][0]["result"])


@pytest.mark.all
@pytest.mark.parametrize(("amount", "state"), [(1, "described anew"), (1000, "with another default")])
async def test_an_effect_in_doubt_when_its_tool_is_deployed_anew_is_asked_about_and_not_done_again(
    stack: Stack, client: Client, tmp_path: Path, amount: int, state: str
) -> None:
    stack.script("pay", call("pay", to="bob"), say("done"))
    stack.bundle("pay", ["pay"], policy=[{"tool": "*", "decision": "allow"}])
    stack.serve_model()
    crash = {"CRASH_AT": "before:outcome[.]json", "CRASH_MARK": str(tmp_path / "mark")}
    first = deploy(stack, tmp_path, 1, "Pay.", CRASHING, **crash)
    run = await stack.start({"goal": "pay", "bundle": "pay"})
    await until(lambda: first.poll() is not None, SLOW, "the kill after the effect")
    deploy(stack, tmp_path, amount, f"Pay, {state}.")
    handle = client.get_workflow_handle(run)
    asked = (await pending(handle, 1, SLOW))[0]
    assert asked["kind"] == "review"
    assert (tmp_path / "paid").read_text() == "bob 1\n"
    done = await stack.shell(asked["commands"]["happened"])
    assert done.returncode == 0, done.stderr
    result = await handle.result()
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]
    assert (tmp_path / "paid").read_text() == "bob 1\n"


WAITING = '''
from activities.tools import tool

@tool(effect="once", timeout={timeout})
async def act(label: str) -> str:
    """Acts."""
    return "done"
'''


def with_time(stack: Stack, folder: Path, timeout: float, module: str = "scripts.cli") -> Any:
    """A worker process whose tool has that many seconds. One of CRASHING dies when the intent is on record, once."""
    (folder / "tools_of_this_test.py").write_text(WAITING.format(timeout=timeout))
    more = {"PERDURE_TOOLS": "tools_of_this_test", "PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    crash = {"CRASH_AT": "after:prepared[.]json", "CRASH_MARK": str(folder / "mark")}
    return stack.start_worker(module=module, **crash, **more)


@pytest.mark.all
async def test_a_lease_that_is_longer_than_an_attempt_of_today_is_waited_out_and_a_person_is_asked(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    """The worker died when the tool had a minute. After a reset the call is judged with the half second of today, by
    which no single attempt can last as long as the lease on record."""
    stack.script("wait", call("act", label="x"), say("done"))
    stack.bundle("wait", ["act"], policy=[{"tool": "*", "decision": "allow"}])
    stack.serve_model()
    first = with_time(stack, tmp_path, 60, CRASHING)
    run = await stack.start({"goal": "act", "bundle": "wait"})
    await until(lambda: first.poll() is not None, SLOW, "the kill after the intent")
    await reset(stack, run)
    replay_script(stack, "wait", call("act", label="x"), say("done"))
    with_time(stack, tmp_path, 0.5)
    handle = client.get_workflow_handle(run)
    asked = (await pending(handle, 1, 150))[0]
    assert (asked["kind"], asked["tool"]) == ("review", "act")
    attempts = [each.activity_task_started_event_attributes.attempt async for each in handle.fetch_history_events()]
    assert max(attempts) > 1, "one attempt was long enough: this test shows nothing"
    done = await stack.shell(asked["commands"]["not_happened"])
    assert done.returncode == 0, done.stderr
    result = await handle.result()
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]


@pytest.mark.all
async def test_a_call_that_was_judged_with_less_time_than_its_tool_has_now_holds_no_longer_lease(
    stack: Stack, client: Client, tmp_path: Path
) -> None:
    """What the run waits for an attempt goes by the time it was judged with, and so does what an attempt may take."""
    stack.script("grown", call("act", label="x"), say("done"))
    stack.bundle("grown", ["act"])
    stack.serve_model()
    first = with_time(stack, tmp_path, 2)
    run = await stack.start({"goal": "act", "bundle": "grown"})
    handle = client.get_workflow_handle(run)
    asked = (await pending(handle, 1, SLOW))[0]
    kill(first)
    second = with_time(stack, tmp_path, 600, CRASHING)
    await stack.send("signal", run, "approve", {"code": asked["code"], "by": "alice"})
    await until(lambda: second.poll() is not None, SLOW, "the kill after the intent")
    with_time(stack, tmp_path, 600)
    review = (await pending(handle, 1, SLOW))[0]
    assert (review["kind"], review["operation_id"]) == ("review", asked["operation_id"])
    (held,) = (stack.folder / "store").rglob("act_1/prepared.json")
    assert json.loads(held.read_text())["claim"]["lease"] == lease_of(2)
