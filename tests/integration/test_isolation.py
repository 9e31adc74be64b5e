"""An agent writes what it then runs: a `conftest.py` that goes for the ledger, Temporal, secrets and its approval."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, call, calls, pending, say, until
from tests.isolation import isolation

pytestmark = isolation
ALLOW = [{"tool": "*", "decision": "allow"}]
CANARY = "sk-test-canary-0123456789"

CONFTEST = """
import os, pathlib, shutil, socket, subprocess, sys, sysconfig
found = []
for top in ({store!r}, {workspaces!r}):
    found += [str(p) for p in pathlib.Path(top).rglob("prepared.json")]
    found += [str(p) for p in pathlib.Path(top).rglob(".perdure-[ui]*")]
found += [str(p) for p in pathlib.Path("..").glob(".perdure-*")]
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try: found += [name for name in ({canary!r}, "TEMPORAL_ADDRESS", "PERDURE_STORE") if name in path.read_text()]
    except OSError: pass
found += [name for name in os.environ if name.startswith(("TEMPORAL", "PERDURE", "OPENAI"))]
host, port = {address!r}.split(":")
for target in ((host, int(port)), ("127.0.0.1", int(port)), ("localhost", int(port))):
    try: socket.create_connection(target, 5); found.append(f"connected to {{target}}")
    except OSError: pass
approve = ["workflow", "update", "execute", "--address", {address!r}, "-w", {run!r}, "--name", "approve", "--input"]
for program in ("temporal", {temporal!r}):
    try:
        done = subprocess.run([program, *approve, '{{"code": "CODE", "by": "agent"}}'], capture_output=True, timeout=20)
        found += ["approved"] if done.returncode == 0 else []
    except OSError: pass
print("FOUND", found, file=sys.stderr)
"""


async def test_a_conftest_reaches_no_ledger_no_temporal_no_secret_and_no_approval(stack: Stack, client: Client) -> None:
    run = f"{stack.name}-0"
    temporal = stack.path.split(":")[0] + "/temporal"
    conftest = CONFTEST.format(
        store=str(stack.folder / "store"),
        workspaces=str(stack.folder / "workspaces"),
        canary=CANARY,
        address=stack.address,
        run=run,
        temporal=temporal,
    )
    shell = {"argv": ["python", "-m", "pytest", "-q", "-s"], "timeout": 120}
    stack.script(
        "attack",
        calls(
            ("write_file", {"path": "conftest.py", "content": conftest}),
            ("write_file", {"path": "test_it.py", "content": "def test_it() -> None: pass\n"}),
        ),
        calls(("shell", shell), ("send_email", {"to": "a@example.com", "subject": "s", "body": "b"})),
        say("done"),
    )
    stack.bundle(
        "attack",
        ["write_file", "shell", "send_email"],
        policy=[{"tool": "send_email", "decision": "ask"}, *ALLOW],
        effect=[{"tool": "shell", "when": "arguments.argv[0] == 'python'", "effect": "read"}],
    )
    stack.serve_model()
    async with stack.worker():
        await stack.start({"goal": "attack", "bundle": "attack"}, run)
        handle = client.get_workflow_handle(run)
        asked = (await pending(handle, 1, 90))[0]
        said: str = await until(lambda: _said(stack), 200, "the end of pytest")
        assert "FOUND []" in said, said
        assert "1 passed" in said
        assert [item["code"] for item in await handle.query("pending")] == [asked["code"]], "still a person's"
        await handle.execute_update("deny", {"code": asked["code"], "by": "alice", "reason": "no"})
        result = await handle.result()
    assert [decision["by"] for decision in result["decisions"]] == ["alice"]
    assert [effect["tool"] for effect in result["effects"]] == ["write_file", "write_file"]


def _said(stack: Stack) -> str | None:
    """What the command said, out of the store."""
    for path in stack.folder.glob("store/threads/*/*/entries/*"):
        body: dict[str, Any] = json.loads(path.read_bytes())
        if body.get("tool") == "shell":
            return str(body["text"])
    return None


@pytest.mark.all
async def test_calls_that_change_the_workspace_come_one_at_a_time_on_any_machine(stack: Stack, client: Client) -> None:
    one = "mkdir busy || exit 9; sleep 0.4; echo {} >> order; rmdir busy"
    stack.script(
        "writers",
        calls(*(("shell", {"argv": ["sh", "-c", one.format(number)], "timeout": 30}) for number in range(4))),
        say("done"),
    )
    stack.bundle("writers", ["shell"], policy=ALLOW)
    stack.serve_model()
    workers = [stack.start_worker(PERDURE_WORKSPACES=str(stack.folder / f"machine-{n}")) for n in range(2)]
    run = await stack.start({"goal": "write", "bundle": "writers"})
    result = await client.get_workflow_handle(run).result()
    assert all(worker.poll() is None for worker in workers)
    assert [str(effect["result"]).split("]")[0] for effect in result["effects"]] == ["[exit code 0"] * 4
    held = await stack.shell(f"perdure files {run} order")
    assert sorted(held.stdout.split()) == [str(number) for number in range(4)], "no change was lost"


@pytest.mark.all
async def test_an_undoing_does_not_wait_for_a_paused_call(stack: Stack, client: Client) -> None:
    command = {"argv": ["sh", "-c", "until [ -e go ]; do sleep 0.1; done"], "timeout": 60}
    stack.script(
        "pause",
        call("write_file", path="a.txt", content="one\n"),
        calls(("shell", command), ("write_file", {"path": "b.txt", "content": "two\n"})),
        say("done"),
    )
    stack.bundle("pause", ["write_file", "shell"], policy=ALLOW)
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "pause"})
        handle = client.get_workflow_handle(run)
        folder = await until(lambda: next(stack.folder.glob("workspaces/*/a.txt"), None), 60, "the first file")
        await until(lambda: list(stack.folder.glob("store/threads/*/*/effects/shell_1/prepared.json")), 60, "the shell")
        await handle.execute_update("pause", {"by": "alice"})
        folder.with_name("go").touch()
        await until(lambda: _effects(handle, "COMMITTED", 2), 60, "the end of the command")
        first = (await handle.query("effects"))[0]["operation_id"]
        await handle.execute_update("compensate", {"operation_id": first, "by": "alice"})
        await until(lambda: _effects(handle, "COMPENSATED", 1), 60, "the undoing")
        assert not folder.with_name("b.txt").exists(), "the run is paused"
        await handle.execute_update("resume", {"by": "alice"})
        result = await handle.result()
    assert {item["path"] for item in result["artifacts"]} == {"go", "b.txt"}


@pytest.mark.all
async def test_a_machine_that_never_saw_the_file_can_undo_its_change(stack: Stack, client: Client) -> None:
    stack.script(
        "undo",
        call("write_file", path="a.txt", content="one\n"),
        call("edit_file", path="a.txt", old="one", new="two"),
        say("done"),
    )
    stack.bundle("undo", ["write_file", "edit_file"], policy=ALLOW)
    stack.serve_model()
    stack.environment["PERDURE_WORKSPACES"] = str(stack.folder / "first")
    async with stack.worker():
        run = await stack.start({"goal": "edit", "bundle": "undo", "interactive": True})
        handle = client.get_workflow_handle(run)
        await until(lambda: _effects(handle, "COMMITTED", 2), 60, "both changes")
    stack.environment["PERDURE_WORKSPACES"] = str(stack.folder / "second")
    async with stack.worker():
        await handle.execute_update("compensate", {"operation_id": await _edit(handle), "by": "alice"})
        await until(lambda: _effects(handle, "COMPENSATED", 1), 60, "the undoing")
        assert _held(stack.folder / "second") == "one\n"
        await handle.execute_update("compensate", {"by": "alice"})
        await until(lambda: _effects(handle, "COMPENSATED", 2), 60, "the undoing of the rest")
        assert _held(stack.folder / "second") is None
        await handle.execute_update("finish", {"by": "alice"})
        assert (await handle.result())["artifacts"] == []


async def _effects(handle: Any, status: str, count: int) -> bool:
    found = await handle.query("effects")
    return len([effect for effect in found if effect["status"] == status]) >= count


async def _edit(handle: Any) -> str:
    return next(str(e["operation_id"]) for e in await handle.query("effects") if e["tool"] == "edit_file")


def _held(machine: Path) -> str | None:
    found = list(machine.glob("*/a.txt"))
    return found[0].read_text() if found else None
