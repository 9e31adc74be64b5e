"""A small project in scripts: what its initializer, coders and evaluators do, with real files, git and tests."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.integration.kit import Stack, call, executions, say

Turns = list[dict[str, Any]]
ROLES = ("initializer", "coder", "evaluator")
LAYOUT = {"spec.md": "# Sums\n", ".gitignore": "__pycache__/\n.pytest_cache/\n", "sums/__init__.py": ""}


def check_of(name: str) -> list[str]:
    """The check command of a task: without a test runner, which would take longer to start than all the rest."""
    return ["python", "-m", f"tests.test_{name}"]


def plan(*names: str) -> Turns:
    """An initializer that lays the ground for these tasks."""
    tasks = [
        {
            "id": name,
            "title": f"Function {name}",
            "status": "open",
            "acceptance": [f"`sums.{name}` is right for 2 and 3"],
            "checks": [check_of(name)],
        }
        for name in names
    ]
    files = {**LAYOUT, "tasks.json": json.dumps({"tasks": tasks})}
    writes = [{"tool": "write_file", "arguments": {"path": p, "content": c}} for p, c in files.items()]
    return [{"text": "", "calls": writes}, call("git_commit", message="Lay the ground"), say(f"{len(names)} tasks")]


def work(name: str, expression: str, right: int, **more: str) -> Turns:
    """A coder that writes a function of two numbers with its test, and commits."""
    files = {
        f"sums/{name}.py": f"def {name}(a: int, b: int) -> int:\n    return {expression}\n",
        f"tests/test_{name}.py": f"from sums.{name} import {name}\n\nassert {name}(2, 3) == {right}\n",
        **more,
    }
    writes = [{"tool": "write_file", "arguments": {"path": p, "content": c}} for p, c in files.items()]
    check = call("shell", argv=check_of(name))
    return [{"text": "", "calls": writes}, check, call("git_commit", message=f"{name}: done"), say(f"{name} is done")]


def grade(name: str, passing: bool = True, *reasons: str) -> Turns:
    """An evaluator that runs the tests and says so."""
    word = {"passing": passing, "criteria": [], "reasons": list(reasons)}
    return [call("shell", argv=check_of(name)), say(json.dumps(word))]


def told(stack: Stack, name: str, turns: Turns, *when: str) -> None:
    """Writes a script that is played when a goal holds all of these texts."""
    stack.script(name, *turns, when=list(when))


def two_tasks(stack: Stack, *heard: str) -> None:
    """A plan of two tasks that go well. The first one's evaluator and the second one's coder hear all of `heard`."""
    told(stack, "plan", plan("add", "times"), "Prepare this project")
    told(stack, "add", work("add", "a + b", 5), "Do the task `add`")
    told(stack, "grade-add", grade("add"), "Grade the task `add`", *heard)
    told(stack, "times", work("times", "a * b", 6), "Do the task `times`", *heard)
    told(stack, "grade-times", grade("times"), "Grade the task `times`")


def roles(stack: Stack, **coder: Any) -> dict[str, str]:
    """Bundles of the three roles; tables of the coder's."""
    allow = [{"tool": "*", "decision": "allow"}]
    tools = ["write_file", "read_file", "shell", "git_commit", "git_log"]
    read = [{"tool": "shell", "effect": "read"}]
    for role in ROLES:
        more = coder if role == "coder" else {}
        stack.bundle(role, tools, version="9", policy=allow, effect=read, **more)
    return {role: f"{role}@9" for role in ROLES}


class Held:
    """Holds the first answer of one script until it is released: `serve_model(on_turn=…)`."""

    def __init__(self, script: str) -> None:
        self._script, self._free = script, threading.Event()
        self.came = False

    def __call__(self, script: str, index: int) -> None:
        """On the request's thread."""
        if (script, index) == (self._script, 0):
            self.came = True
            self._free.wait(60)

    def release(self) -> None:
        """Lets it go."""
        self._free.set()


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(folder: Path) -> Path:
    """An empty repository of a user."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)
    return folder


async def start(stack: Stack, client: Client, name: str = "", **value: Any) -> WorkflowHandle[Any, dict[str, Any]]:
    """Starts a project."""
    name = name or f"{stack.name[:40]}-project"
    stack.runs.append(name)
    await client.start_workflow("ProjectRun", {"brief": "Sums", **value}, id=name, task_queue=stack.name)
    return client.get_workflow_handle(name, result_type=dict)


async def waits(project: WorkflowHandle[Any, Any], kind: str) -> bool:
    """Whether a project waits for that."""
    return kind in (await project.query("status"))["waiting_on"]


async def send(project: WorkflowHandle[Any, Any], name: str, **body: Any) -> Any:
    """Sends an update by ann."""
    return await project.execute_update(name, {"by": "ann", **body})


async def asked_by(stack: Stack, project: WorkflowHandle[Any, Any]) -> list[dict[str, Any]]:
    """What `perdure pending` shows of a project."""
    listed = json.loads((await stack.shell("perdure pending --json")).stdout)
    return [item for item in listed if item["owner"] == project.id]


async def shell(stack: Stack, line: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """A line under bash, which ends with this code."""
    done = await stack.shell(line)
    assert done.returncode == code, f"{line}: {done.returncode} {done.stdout} {done.stderr}"
    return done


async def parked_on(project: WorkflowHandle[Any, Any], said: str) -> bool:
    """Whether a project is parked, and why."""
    return said in ((await project.query("status"))["problem"] or {"message": ""})["message"]


async def rolled(client: Client, name: str) -> bool:
    return len(await executions(client, name)) == 2


async def waits_for_resume(project: WorkflowHandle[Any, Any]) -> bool:
    """Whether a project is paused between two sessions."""
    status = await project.query("status")
    return status["status"] == "paused" and status["session"] is None
