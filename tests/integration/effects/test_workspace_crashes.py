"""Workers die by SIGKILL around the tools of the workspace: what is in the folder, and what the ledger says.

A cell that differs from the table of docs/tools.md fails.
"""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from tests.integration.effects.crashes import CRASHING, WINDOWS, start
from tests.integration.kit import ROOT, Stack, call, kill, say, until
from tests.isolation import isolation

pytestmark = isolation
DOC = ROOT / "docs" / "tools.md"
SLOW = Path(__file__).with_name("slow_rename")
ALLOW = [{"tool": "*", "decision": "allow"}]

HOOK = "#!/bin/sh\n[ -e began ] || { touch began; sleep 20; }\n"
MAKE_HOOK = (
    "git init -q -b main && cat > .git/hooks/pre-commit <<'END'\n" + HOOK + "END\nchmod +x .git/hooks/pre-commit"
)
SHELL = "echo x >> a.txt; [ -e began ] || [ -e quick ] || { touch began; sleep 60; }"


def turns(tool: str, window: str) -> list[dict[str, Any]]:
    """What the model says: something to work on, and the call that the worker dies of. A look at the files follows, so
    that at the end the folder is what the record says."""
    if tool == "write":
        return [call("write_file", path="a.txt", content="+")]
    if tool == "edit":
        return [call("write_file", path="a.txt", content="old"), call("edit_file", path="a.txt", old="old", new="old+")]
    if tool == "commit":
        hook = MAKE_HOOK if window == "during the effect" else "true"
        before = call("shell", argv=["sh", "-c", f"mkdir -p .git/hooks; {hook}; echo x > a.txt"], timeout=20)
        return [before, call("git_commit", message="Work")]
    quick = "" if window == "during the effect" else "touch quick; "
    return [call("shell", argv=["sh", "-c", quick + SHELL], timeout=6)]


NAMES = {"write": "write_file", "edit": "edit_file", "commit": "git_commit", "shell": "shell", "shell_read": "shell"}
COLUMNS = {
    "write": "`write_file`",
    "edit": "`edit_file`",
    "commit": "`git_commit`",
    "shell": "`shell`",
    "shell_read": "`shell`, `read` by a rule",
}
NO_LEDGER = ("during the effect", "after it was reported")
CELLS = [(window, tool) for window in WINDOWS for tool in COLUMNS if tool != "shell_read" or window in NO_LEDGER]
ELSEWHERE = [
    (window, tool) for window in ("during the effect", "after the effect") for tool in ("write", "edit", "commit")
]


def count(folder: Path, tool: str) -> int:
    """How often the effect is in the workspace."""
    workspace = next((path for path in folder.glob("*") if not path.name.startswith(".")), folder)
    if tool == "commit":
        done = subprocess.run(["git", "log", "--oneline"], cwd=workspace, capture_output=True, text=True, check=False)
        return len(done.stdout.splitlines()) if (workspace / ".git").exists() else 0
    path = workspace / "a.txt"
    text = path.read_text() if path.exists() else ""
    return text.count("x" if tool.startswith("shell") else "+")


def label_of(window: str, tool: str, machines: int) -> str:
    return f"{tool}{machines}-{re.sub('[^a-z]+', '-', window.lower())}"


def prepare(stack: Stack, cells: list[tuple[str, str, int]]) -> None:
    """Bundles and scripts for the cells."""
    for window, tool, machines in cells:
        label = label_of(window, tool, machines)
        stack.script(label, *turns(tool, window), call("list_files"), say("done"))
        rule: dict[str, Any] = {"effect": [{"tool": "shell", "effect": "read"}]} if tool == "shell_read" else {}
        stack.bundle(label, ["write_file", "edit_file", "shell", "git_commit", "list_files"], policy=ALLOW, **rule)
    stack.serve_model()


async def cell(stack: Stack, client: Client, window: str, tool: str, machines: int = 1) -> str:
    """Two workers, on one machine or on two, one kill, and the end: effects and the ledger's state."""
    label = label_of(window, tool, machines)
    folders = [stack.folder / f"{label}-machine-{number % machines}" for number in range(2)]
    mark, queue = stack.folder / f"mark-{label}", f"{stack.name[:40]}-{label}"
    at = WINDOWS[window].replace(":", f":effects/{NAMES[tool]}_1/") if WINDOWS[window] else "never:x"
    crash = {"CRASH_AT": at, "CRASH_MARK": str(mark), "PERDURE_TASK_QUEUE": queue}
    if window == "during the effect" and tool in ("write", "edit"):
        crash |= {"PYTHONPATH": f"{SLOW}:{ROOT}", "SLOW_MARK": str(mark), "SLOW_OVER": str(int(tool == "edit"))}
    workers = [stack.start_worker(module=CRASHING, PERDURE_WORKSPACES=str(folder), **crash) for folder in folders]
    try:
        run = await start(stack, queue, label)
        handle = client.get_workflow_handle(run)
        if window == "during the effect":
            await until(lambda: mark.exists() or _began(folders), 200, f"the effect of {label}")
            kill(next(worker for worker in workers if _has_tool(worker)))
        elif window == "after it was reported":
            await until(lambda: _reported(handle, tool), 200, f"the effect of {label}")
            for worker in workers:
                kill(worker)
            workers.append(stack.start_worker(module=CRASHING, PERDURE_WORKSPACES=str(folders[0]), **crash))
        else:
            await until(lambda: any(worker.poll() is not None for worker in workers), 200, f"the death in {label}")
        state = await until(lambda: _settled(handle, tool), 400, f"the end of {label}")
        alive = next(n for n, worker in reversed(list(enumerate(workers))) if worker.poll() is None)
        return f"{count(folders[alive % 2], tool)}, {state}"
    finally:
        for worker in workers:
            if worker.poll() is None:
                kill(worker)


def _began(folders: list[Path]) -> bool:
    return any(list(folder.glob("*/began")) for folder in folders)


def _has_tool(worker: "subprocess.Popen[bytes]") -> bool:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == worker.pid and b"child.py" in path.with_name("cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


async def _reported(handle: WorkflowHandle[Any, Any], tool: str) -> bool:
    if tool == "shell_read":
        return int((await _ask(handle, "status") or {"turn": 0})["turn"]) >= 2
    found = await _ask(handle, "effects") or []
    return any(effect["tool"] == NAMES[tool] and effect["status"] == "COMMITTED" for effect in found)


async def _settled(handle: WorkflowHandle[Any, Any], tool: str) -> str | None:
    """The state of the effect once the run has ended or asks a person."""
    status, effects = await _ask(handle, "status"), await _ask(handle, "effects")
    if status is None or effects is None:
        return None
    if status["status"] != "completed" and "review" not in status["waiting_on"]:
        return None
    found = [effect["status"] for effect in effects if effect["tool"] == NAMES[tool]]
    return "-" if tool == "shell_read" or not found else str(found[-1])


async def _ask(handle: WorkflowHandle[Any, Any], query: str) -> Any:
    """What a query gives; None while no worker is there to answer."""
    try:
        return await asyncio.wait_for(handle.query(query), 5)
    except Exception:  # noqa: BLE001 - whatever a query fails with
        return None


def documented(window: str, tool: str) -> str:
    rows = [line.split("|")[1:-1] for line in DOC.read_text().splitlines() if line.startswith("|")]
    head = next(row for row in rows if row[0].strip() == "killed")
    row = next(row for row in rows if row[0].strip() == window)
    return row[[part.strip() for part in head].index(COLUMNS[tool])].strip()


@pytest.mark.all
async def test_a_worker_killed_while_a_command_runs_leaves_what_the_table_says(stack: Stack, client: Client) -> None:
    window, tool = "during the effect", "shell"
    prepare(stack, [(window, tool, 1)])
    assert await cell(stack, client, window, tool) == documented(window, tool)


@pytest.mark.all
@pytest.mark.parametrize("tool", COLUMNS)
async def test_the_crash_matrix_of_a_tool_of_the_workspace(
    stack: Stack, client: Client, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    gate, found = asyncio.Semaphore(2), dict[tuple[str, int], str]()
    cells = [(*each, 1) for each in CELLS if each[1] == tool] + [(*each, 2) for each in ELSEWHERE if each[1] == tool]
    prepare(stack, cells)

    async def one(window: str, tool: str, machines: int) -> None:
        async with gate:
            found[window, machines] = await cell(stack, client, window, tool, machines)

    await asyncio.gather(*(one(*each) for each in cells))
    with capsys.disabled():
        sys.stdout.write(f"\n{COLUMNS[tool]}: {found}\n")
    assert {key: seen for key, seen in found.items() if seen != documented(key[0], tool)} == {}


@pytest.mark.all
async def test_a_file_that_somebody_changed_meanwhile_stops_the_call_and_asks(stack: Stack, client: Client) -> None:
    stack.script("edit", *turns("edit", ""), say("done"))
    stack.bundle("edit", ["write_file", "edit_file"], policy=ALLOW)
    stack.serve_model()
    mark = stack.folder / "mark"
    slow = {"PYTHONPATH": f"{SLOW}:{ROOT}", "SLOW_MARK": str(mark), "SLOW_OVER": "1"}
    worker = stack.start_worker(**slow)
    run = await stack.start({"goal": "edit", "bundle": "edit"})
    await until(mark.exists, 120, "the edit")
    kill(worker)
    path = next((stack.folder / "workspaces").glob("*/a.txt"))
    path.write_text("somebody else's")
    worker = stack.start_worker(**slow)
    handle = client.get_workflow_handle(run)
    asked = await until(lambda: _review(handle), 120, "the review")
    assert "neither as this operation found it nor as it would leave it" in str(asked)
    assert path.read_text() == "somebody else's"
    await handle.execute_update("resolve", {"code": asked["code"], "outcome": "give_up", "by": "alice"})
    assert (await handle.result())["effects"][-1]["status"] == "SKIPPED"
    assert os.listdir(path.parent)


async def _review(handle: WorkflowHandle[Any, Any]) -> Any:
    return next((each for each in await _ask(handle, "pending") or [] if each["kind"] == "review"), None)
