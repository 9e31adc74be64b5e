"""Requests that are too long to be shown whole, all at once."""

import json

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, calls, pending, say

SLOW = 90


@pytest.mark.all
async def test_what_is_asked_at_once_can_be_read_with_the_plain_cli_however_long_it_is(
    stack: Stack, client: Client
) -> None:
    """Too long for history, it would be in the store, where that cannot read it."""
    files = [("write_file", {"path": f"{n}", "content": "x" * 16_200}) for n in range(20)]
    questions = [("ask_human", {"question": f"{n}?", "choices": ["'" * 15_000, "no"]}) for n in range(12)]
    stack.script("long", calls(*files, *questions), say("done"))
    stack.bundle("long", ["write_file", "ask_human"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "long"})
        codes = {item["code"] for item in await pending(client.get_workflow_handle(run), 32, SLOW)}
        query = ("workflow", "query", "--workflow-id", run, "--type")
        items = json.loads((await stack.temporal(*query, "pending")).stdout)["queryResult"][0]
        assert {item["code"] for item in items} == codes
        told = json.loads((await stack.temporal(*query, "__temporal_workflow_metadata")).stdout)["queryResult"][0]
        assert all(f"\n{line}\n" in told["currentDetails"] for item in items for line in item["commands"].values())
        one = next(item["code"] for item in items if item["kind"] == "question")
        whole = await stack.temporal(*query, "pending", "--input", json.dumps({"code": one}))
        [item] = json.loads(whole.stdout)["queryResult"][0]
        assert item["arguments"]["choices"] == ["'" * 15_000, "no"]
        wrong = await stack.shell(f"perdure answer {one} no. --by ann --run {run}")
        assert (wrong.returncode, "must be one of" in wrong.stderr) == (1, True)
        approve = next(item["commands"]["approve"] for item in items if item["kind"] == "approval")
        for line in (approve, f"perdure answer {one} no --by ann --run {run}"):
            assert (await stack.shell(line)).returncode == 0
        await client.get_workflow_handle(run).terminate()
