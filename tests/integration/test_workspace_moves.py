"""The workspace outlives the machine that it was on."""

import json
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, call, calls, kill, say, until

ALLOW = [{"tool": "*", "decision": "allow"}]


@pytest.mark.all
async def test_a_worker_without_the_folder_finishes_the_report_of_one_that_was_killed(
    stack: Stack, client: Client
) -> None:
    stack.environment["PERDURE_TOOLS"] = "tests.integration.slow_tools"
    stack.script(
        "report",
        call("write_file", path="report/one.md", content="Part one.\n"),
        calls(("write_file", {"path": "report/two.md", "content": "Part two.\n"}), ("linger", {"seconds": 3})),
        call("read_file", path="report/one.md"),
        {**call("edit_file", path="report/one.md", old="Part", new="Chapter"), "expect": "Part one."},
        say("written"),
    )
    stack.bundle("report", ["write_file", "edit_file", "read_file", "linger"], policy=ALLOW)
    stack.serve_model()
    first = stack.start_worker(PERDURE_WORKSPACES=str(stack.folder / "first"))
    run = await stack.start({"goal": "write a report", "bundle": "report"})
    done = "store/threads/*/*/effects/write_file_2/outcome.json"  # else its lease is waited out, which takes long
    await until(lambda: list(stack.folder.glob(done)), 90, "the second part")
    second = stack.start_worker(PERDURE_WORKSPACES=str(stack.folder / "second"))
    await until(lambda: (stack.folder / "first").exists() and second.poll() is None)
    kill(first)
    result = await client.get_workflow_handle(run).result()
    assert result["status"] == "completed"
    assert {item["path"] for item in result["artifacts"]} == {"report/one.md", "report/two.md", "lingered.txt"}
    found = {path.name: path.read_text() for path in (stack.folder / "second").glob("*/report/*")}
    assert found == {"one.md": "Chapter one.\n", "two.md": "Part two.\n"}
    listed = await stack.shell(f"perdure files {run} --json")
    assert {item["path"] for item in json.loads(listed.stdout)["files"]} == {
        item["path"] for item in result["artifacts"]
    }
    assert (await stack.shell(f"perdure files {run} report/one.md")).stdout == "Chapter one.\n"
    missing = await stack.shell(f"perdure files {run} nothing.md")
    assert (missing.returncode, "no file 'nothing.md'" in missing.stderr) == (1, True)
    asked = stack.requests("report")
    assert sorted(asked) == [str(number) for number in range(5)]
    assert sum(asked.values()) <= 6, "at most the request in flight at the kill was made again"


@pytest.mark.all
async def test_a_workspace_that_cannot_be_had_parks_the_run_until_it_can(stack: Stack, client: Client) -> None:
    stack.script("park", call("write_file", path="a", content="A"), call("read_file", path="a"), say("done"))
    stack.bundle("park", ["write_file", "read_file"], policy=[{"tool": "write_file", "decision": "allow"}])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "park", "budget": {"turns": 1}})
        handle = client.get_workflow_handle(run)
        await until(lambda: _kept(stack, "a"), what="the file")
        await until(lambda: _asks(handle), what="the wait for more budget")
    blob = next(stack.folder.glob("store/threads/*/*/files/*"))
    content = blob.read_bytes()
    blob.unlink()
    stack.environment["PERDURE_WORKSPACES"] = str(stack.folder / "elsewhere")
    async with stack.worker():
        await handle.execute_update("budget", {"turns": 9, "by": "alice"})
        await until(lambda: _parked(handle), what="the parking")
        blob.write_bytes(content)
        assert (await handle.result())["status"] == "completed"
    assert next((stack.folder / "elsewhere").glob("*/a")).read_text() == "A"


def _kept(stack: Stack, name: str) -> bool:
    """Whether a change of that file is on record."""
    bodies = [json.loads(path.read_bytes()) for path in stack.folder.glob("store/threads/*/*/entries/*")]
    return any(path.endswith(name) for body in bodies for path in body.get("changed", {}))


async def _asks(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool((await handle.query("status"))["waiting_on"] == ["budget"])


async def _parked(handle: WorkflowHandle[Any, Any]) -> bool:
    status = await handle.query("status")
    return bool(status["status"] == "parked" and status["waiting_on"] == ["workspace"])
