"""Histories that a user's codec encrypts: nothing that was said is in them, and the commands read them."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from tests.integration.kit import ROOT, Stack, call, pending, say

CANARY = "canary-4711"
KEY = "0123456789abcdef0123456789abcdef"


async def test_what_was_said_is_not_in_history_and_the_commands_read_it(
    monkeypatch: pytest.MonkeyPatch, stack: Stack, client: Client
) -> None:
    monkeypatch.setenv("SEALING_KEY", KEY)
    stack.environment |= {"PERDURE_CODEC": "tests.integration.sealing_codec:Sealing", "SEALING_KEY": KEY}
    stack.environment["PYTHONPATH"] = str(ROOT)
    stack.script("told", call("write_file", f"text {CANARY}", path="a.txt", content=CANARY), say(f"done, {CANARY}"))
    stack.bundle("told", ["write_file"])
    stack.serve_model()
    sealed = await Client.connect(stack.address, data_converter=stack.converter())
    large = {"goal": f"{CANARY} " * 60_000, "bundle": "told"}
    worker = stack.start_worker()
    stack.runs += [f"{stack.name}-run", f"{stack.name}-bad"]
    handle = await sealed.start_workflow("AgentRun", large, id=stack.runs[0], task_queue=stack.name)
    [asked] = await pending(handle, seconds=90)
    assert asked["arguments"] == {"path": "a.txt", "content": CANARY}
    done = await stack.shell(
        f"perdure pending --run {handle.id} --json && perdure approve {asked['code']} --run {handle.id} --by ann"
    )
    assert (done.returncode, CANARY in done.stdout) == (0, True), done.stdout + done.stderr
    result: dict[str, Any] = await handle.result()
    assert result["output"] == f"done, {CANARY}"
    bad = await sealed.start_workflow("AgentRun", {"goal": "x", CANARY: 1}, id=stack.runs[1], task_queue=stack.name)
    with pytest.raises(WorkflowFailureError) as failed:
        await bad.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert CANARY in failed.value.cause.message
    worker.terminate()
    worker.wait()
    for run in stack.runs:
        plain = client.get_workflow_handle(run)
        seen = [event.SerializeToString() for event in (await plain.fetch_history()).events]
        seen.append((await plain.describe()).raw_description.SerializeToString())
        assert not [each for each in seen if CANARY.encode() in each]
    kept = list((stack.folder / "store").glob("threads/*/payloads/*"))
    assert kept
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]
    await replayed(stack)


async def replayed(stack: Stack) -> None:
    """By id and from a file, with the codec; without it, and with another key, it is said what is missing."""
    file = stack.folder / "history.json"
    run = stack.runs[0]
    done = await stack.shell(f"temporal workflow show -w {run} -o json > {file}; perdure replay {run} {file} --json")
    told = json.loads(done.stdout)
    assert [(one["ok"], one["fault"]) for one in told] == [(True, None)] * 2, done.stdout + done.stderr
    assert (await stack.shell(f"grep -c {CANARY} {file} || true")).stdout.strip() == "0"
    for change, said in (
        ("unset PERDURE_CODEC", "no codec is configured"),
        ("export SEALING_KEY=" + "0" * 32, "cannot decode it (InvalidTag)"),
        ("export PERDURE_CODEC=nowhere:x", "PERDURE_CODEC"),
    ):
        done = await stack.shell(f"{change}; perdure replay {file} || exit $?")
        assert done.returncode in (1, 2), change
        assert said in done.stdout + done.stderr, done.stdout + done.stderr
