"""Forks that cannot be: each fails at once, with a name and what would do instead."""

from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from tests.integration.kit import Stack, call, say


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workflow_id": "nobody", "checkpoint": 1}, "nobody"),
        ({"checkpoint": 99}, "99"),
        ({"checkpoint": -1}, "checkpoint"),
        ({"checkpoint": 1, "edits": [{"drop": 2}]}, "orphan"),
        ({"checkpoint": 1, "edits": [{"replace": 9, "content": "x"}]}, "9"),
        ({"checkpoint": 1, "edits": [{"remove": 1}]}, "edits.0"),
        ({"checkpoint": 1, "edits": [{"tool_result": "7.0", "content": "x"}]}, "7.0"),
        ({"checkpoint": 1, "damage": True}, "damaged"),
    ],
    ids=["unknown-run", "unknown-checkpoint", "negative", "orphan", "no-message", "no-edit", "no-call", "damaged"],
)
async def test_what_cannot_be_forked_fails_with_a_name(
    stack: Stack, client: Client, given: dict[str, Any], said: str
) -> None:
    stack.script("source", call("list_files", path="."), say("done"))
    stack.bundle("source", ["list_files"])
    stack.serve_model()
    async with stack.worker():
        source = await stack.start({"goal": "act", "bundle": "source"})
        await client.get_workflow_handle(source).result()
        if given.pop("damage", False):
            (path,) = (stack.folder / "store" / "threads" / source).glob("*/checkpoints/*/00000001.json")
            path.write_bytes(path.read_bytes().replace(b"list_files", b"list_filez"))
        forked = await stack.start({"fork": {"workflow_id": source, **given}})
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(forked).result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "InvalidInput"
    assert said in cause.message, cause.message
