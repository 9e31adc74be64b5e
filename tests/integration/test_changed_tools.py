"""What was approved is what runs: a deploy that changes a tool while its call waits makes it ask again."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowUpdateFailedError

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
