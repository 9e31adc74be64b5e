"""A change of everything under runs that are open: real worker processes of two builds, and what is said at each step.

Build 2 has another prompt, another schema of a tool, and patched workflow code.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from scripts.embedded import EmbeddedTemporal
from tests.integration.checkouts import checkout
from tests.integration.kit import ROOT, Stack, call, executions, kill, pending, say, until
from workers.client import DATA_CONVERTER
from workers.deployments import current_build
from workers.open_runs import POLL_SECONDS

SLOW = 120
NAMES = ("waiting", "rolling", "turning", "leaving")
TOOL = '''
import asyncio
from pathlib import Path
from activities.tools import tool

@tool(effect="read", timeout=200)
async def look(place: str{more}) -> str:
    """Look at a place."""
    while place in ("turning", "leaving") and not Path("{go}", place).exists():
        await asyncio.sleep(0.1)
    return f"{{place}}: nothing"
'''
PATCHED = (
    (
        "workflows/sessions.py",
        "from workflows import catalog\n",
        "from temporalio import workflow\nfrom workflows import catalog\n",
    ),
    (
        "workflows/sessions.py",
        "        state.read_inbox()\n        if state.handoff_by",
        (
            '        state.read_inbox()\n        if workflow.patched("a-breath-before-a-turn"):\n'
            "            await workflow.sleep(0.01)\n        if state.handoff_by"
        ),
    ),
)
UNPATCHED = (PATCHED[0], (*PATCHED[1][:2], PATCHED[1][2].replace('workflow.patched("a-breath-before-a-turn")', "True")))


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[Stack, Client]]:
    """A server of its own: the current version of a deployment is the whole namespace's."""
    with EmbeddedTemporal(tmp_path / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
        stack = Stack(server.address, tmp_path / "stack", "builds")
        (stack.folder / "go").mkdir()
        for name in ("waiting", "turning", "leaving"):
            stack.script(name, call("look", place=name), call("write_file", path="a", content="A"), say("done"))
            stack.bundle(name, ["look", "write_file"], model=[{"model": name}], budget={"turns": 90})
        stack.script("second", say("by the other prompt"))
        stack.bundle("rolling", [], model=[{"model": "rolling"}])
        stack.script("rolling", *[say(f"answer {number}") for number in range(20)])
        stack.serve_model()
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        registered = await stack.shell("perdure setup")
        assert registered.returncode == 0, registered.stderr
        yield stack, client
        stack.close()


class Build:
    """A checkout, with the tools that it comes with."""

    def __init__(self, stack: Stack, name: str, root: Path, more: str = "") -> None:
        self.stack, self.name, self.root = stack, name, root
        folder = stack.folder / f"tools-{name}"
        folder.mkdir()
        (folder / "tools_of_the_trial.py").write_text(TOOL.format(go=stack.folder / "go", more=more))
        self.path = f"{folder}:{root}"

    def start(self) -> "subprocess.Popen[bytes]":
        """A worker process of this build."""
        self.stack.root = self.root
        more = {"PYTHONDONTWRITEBYTECODE": "1", "PERDURE_TOOLS": "tools_of_the_trial"}
        return self.stack.start_worker(PERDURE_BUILD_ID=self.name, PYTHONPATH=self.path, **more)

    async def deploy(self, *options: str) -> tuple[int, dict[str, Any], str]:
        """`perdure deploy` of this checkout: exit code, report, what it said."""
        lines = f"PERDURE_BUILD_ID={self.name} PYTHONPATH={self.path} PERDURE_TOOLS=tools_of_the_trial "
        lines += f"{sys.executable} -m scripts.cli deploy --json {' '.join(options)}"
        done = await self.stack.shell(lines, self.root)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def second(stack: Stack, tmp_path: Path, changes: Any = PATCHED) -> Build:
    """Build 2: patched workflow code, a tool with one more parameter, and a newer version of the bundle."""
    stack.bundle("waiting", ["look"], version="2", model=[{"model": "second"}])
    (stack.folder / "bundles" / "waiting" / "2" / "prompt.md").write_text("You are another one.\n")
    return Build(stack, "b2", checkout(tmp_path / "two", *changes), ", deep: bool = False")


async def is_current(client: Client, build: str) -> bool:
    return await current_build(client) == build


async def state_of(handle: WorkflowHandle[Any, Any], kind: str) -> bool:
    return kind in (await handle.query("status"))["waiting_on"]


async def open_runs(stack: Stack, client: Client) -> dict[str, WorkflowHandle[Any, Any]]:
    """One that waits for approval, one that is idle and will be told to roll over, one in the middle of its first
    turn's tool, and one in the middle of a rollover: it was asked for, and the tool that runs holds it up."""
    for name in NAMES:
        await stack.start({"goal": name, "bundle": f"{name}@1", "interactive": name == "rolling"}, name)
    found = {name: client.get_workflow_handle(name) for name in NAMES}
    await pending(found["waiting"], 1, SLOW)
    for name in ("turning", "leaving"):
        await until(partial(turned, found[name]), SLOW)
    await found["leaving"].execute_update("rollover", {"by": "ann"})
    await until(lambda: state_of(found["rolling"], "message"), SLOW)
    await found["rolling"].signal("pause", {"by": "ann"})
    assert len(await executions(client, "leaving")) == 1, "it cannot leave while the tool runs"
    return found


async def turned(handle: WorkflowHandle[Any, Any]) -> bool:
    return bool((await handle.query("status"))["turn"] >= 1)


async def finish(found: dict[str, WorkflowHandle[Any, Any]]) -> dict[str, Any]:
    """Says what each waits for, and gives the results."""
    for name in ("waiting", "turning", "leaving"):
        request = (await pending(found[name], 1, SLOW))[0]
        await found[name].execute_update("approve", {"code": request["code"], "by": "ann"})
    await found["rolling"].execute_update("resume", {"by": "ann"})
    await found["rolling"].execute_update("message", {"text": "go on", "by": "ann"})
    await found["rolling"].execute_update("finish", {"by": "ann"})
    return {name: await handle.result() for name, handle in found.items()}


@pytest.mark.all
async def test_a_new_build_takes_over_while_runs_are_open(own: tuple[Stack, Client], tmp_path: Path) -> None:
    stack, client = own
    one = Build(stack, "b1", ROOT)
    first = one.start()
    code, report, said = await one.deploy("--wait", "90s")
    assert (code, report["checked"]) == (0, 0), said
    found = await open_runs(stack, client)

    two = second(stack, tmp_path)
    code, report, said = await two.deploy("--wait", "1s")
    assert code == 1, "no worker of build 2 yet"
    assert "PERDURE_BUILD_ID=b2 perdure worker" in said
    two.start()
    deploying = asyncio.create_task(two.deploy("--wait", "90s"))
    await until(lambda: is_current(client, "b2"), SLOW, "build 2 being current")
    for name in ("turning", "leaving"):
        (stack.folder / "go" / name).touch()
    code, report, said = await deploying
    assert code == 0, said
    assert (report["checked"], report["faults"]) == (4, [])
    assert set(report["told"]) >= {"waiting", "rolling"}
    versions = {each["build"]: each for each in report["versions"]}
    assert (versions["b2"]["status"], versions["b2"]["runs"]) == ("current", 4), report
    assert versions["b1"]["runs"] == 0
    assert "no open run is left on b1" in said
    first.terminate()
    assert first.wait(60) == 0

    results = await finish(found)
    assert len(await executions(client, "leaving")) >= 2, "it rolled over"
    assert {name: result["status"] for name, result in results.items()} == dict.fromkeys(found, "completed")
    assert {result["versions"]["build_id"] for result in results.values()} == {"b2"}
    assert {name: result["versions"]["bundle"] for name, result in results.items()} == {n: f"{n}@1" for n in found}
    await stack.start({"goal": "new", "bundle": "waiting"}, "new")
    new = await client.get_workflow_handle("new").result()
    assert (new["output"], new["versions"]["bundle"], new["versions"]["build_id"]) == (
        "by the other prompt",
        "waiting@2",
        "b2",
    )
    stuck = await stack.shell("perdure runs --stuck")
    assert stuck.returncode == 0, stuck.stdout


@pytest.mark.all
async def test_runs_whose_workers_were_killed_are_named_with_what_rescues_them(
    own: tuple[Stack, Client], tmp_path: Path
) -> None:
    stack, client = own
    one = Build(stack, "b1", ROOT)
    first = one.start()
    assert (await one.deploy("--wait", "90s"))[0] == 0
    (stack.folder / "go" / "turning").touch()
    found = await open_runs(stack, client)
    kill(first)
    (stack.folder / "go" / "leaving").touch()
    two = second(stack, tmp_path)
    two.start()

    async def named() -> Any:
        code, report, _ = await two.deploy("--wait", "50s")
        return report if code == 1 and len(report.get("no_worker", [])) == len(NAMES) else None

    report = await until(named, POLL_SECONDS + SLOW, "the runs without a worker")
    doctor = await stack.shell("perdure doctor")
    assert "no worker for build b1: 4 open runs wait for one" in doctor.stdout
    assert doctor.returncode == 1
    stuck = await stack.shell("perdure runs --stuck --json")
    lines = {each["workflow_id"]: each for each in json.loads(stuck.stdout)}
    for run in found:
        assert lines[run]["detail"] == "no worker for build b1"
        assert "PERDURE_BUILD_ID=b1 perdure worker" in lines[run]["remedy"]
        moved = await stack.shell(lines[run]["remedy"].partition("current build: ")[2])
        assert moved.returncode == 0, moved.stderr
    assert {each["workflow_id"] for each in report["no_worker"]} == set(found)
    results = await finish(found)
    assert len(await executions(client, "leaving")) >= 2, "the rollover that was under way was made"
    assert {result["status"] for result in results.values()} == {"completed"}
    assert {result["versions"]["build_id"] for result in results.values()} == {"b2"}


@pytest.mark.all
async def test_a_build_that_would_break_open_runs_is_refused(own: tuple[Stack, Client], tmp_path: Path) -> None:
    stack, client = own
    one = Build(stack, "b1", ROOT)
    one.start()
    assert (await one.deploy("--wait", "90s"))[0] == 0
    (stack.folder / "go" / "turning").touch()
    found = await open_runs(stack, client)
    two = second(stack, tmp_path, UNPATCHED)
    two.start()
    code, report, said = await two.deploy()
    assert code == 1
    assert "workflow.patched" in said
    assert "versions" not in report
    code, report, said = await two.deploy("--check")
    assert (code, {each["workflow_id"] for each in report["faults"]}) == (1, set(found))
    unversioned = await stack.shell("timeout 60 perdure worker")
    assert unversioned.returncode == 2
    assert "PERDURE_BUILD_ID is empty" in unversioned.stderr
    assert "--unversioned" in unversioned.stderr
