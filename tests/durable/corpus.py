"""Small real runs of every path, recorded once for each version of the workflow code and replayed ever after."""

import json
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import tests.durable.many
import tests.durable.resets  # noqa: F401, both register their paths
from activities.bundles import Bundles
from activities.errors import IncompatiblePayload
from activities.manifest import Manifest
from tests.durable.playing import PLAYS as PLAYS
from tests.durable.playing import decide, fails, play, run, session_is, waits
from tests.integration.kit import ROOT, Stack, call, calls, pending, say, until
from workers.client import WORKER_DATA_CONVERTER
from workers.worker import WORKFLOWS, PlainRunner

HISTORIES = Path(__file__).parent / "histories"

PATCH = """
The commands that a run issues, in their order, are in the histories of runs that are alive. A worker with this code
would not continue them. Keep the old order for old runs:

    if workflow.patched("what-changed"):
        ...   # the new way
    else:
        ...   # the old way, until no open run needs it

Then, when no open run is older: workflow.deprecate_patch("what-changed") in the place of the `if`, and at last nothing.
"""


@play("plain")
async def plain(stack: Stack, client: Client) -> None:
    """A local read, a read on the tools queue, an answer."""
    turns = (call("list_files", path="."), call("search_files", pattern="x"), say("nothing"))
    async with run(stack, client, "plain", ["list_files", "search_files"], *turns) as handle:
        await handle.result()


@play("decided")
async def decided(stack: Stack, client: Client) -> None:
    """Approved, edited, denied, one after the other."""
    turns = [call("write_file", path=f"{name}.txt", content=name) for name in "abc"]
    async with run(stack, client, "decided", ["write_file"], *turns, say("done")) as handle:
        await decide(handle, "approve")
        await decide(handle, "approve", arguments={"path": "b.txt", "content": "B"})
        await decide(handle, "deny", reason="no c")
        await handle.result()


@play("parallel")
async def parallel(stack: Stack, client: Client) -> None:
    """Three calls of one turn together, one of them asks; a fourth is the same as the second."""
    look, write = ("list_files", {"path": "."}), ("write_file", {"path": "a.txt", "content": "a"})
    turns = (calls(look, ("search_files", {"pattern": "x"}), write, write), say("done"))
    async with run(stack, client, "parallel", ["list_files", "search_files", "write_file"], *turns) as handle:
        await decide(handle, "approve")
        await handle.result()


@play("reviewed")
async def reviewed(stack: Stack, client: Client) -> None:
    """A call whose outcome nobody knows, resolved by a person."""
    stack.environment["PERDURE_TOOLS"] = "tests.durable.tools"
    turns = (call("vanish", where="there"), say("done"))
    async with run(stack, client, "reviewed", ["vanish"], *turns) as handle:
        await decide(handle, "approve")
        await until(lambda: waits(handle, "review"))
        request = next(one for one in await pending(handle) if one["kind"] == "review")
        body = {"code": request["code"], "outcome": "happened", "result": "there", "by": "ann"}
        await handle.execute_update("resolve", body)
        await handle.result()


@play("handed")
async def handed(stack: Stack, client: Client) -> None:
    """A handoff by message, a second one with an upgrade, a message in each session."""
    stack.bundle("handed", [], version="2")
    async with run(stack, client, "handed", [], *[say("ok")] * 9, interactive=True, bundle="handed@1") as handle:
        for session in (2, 3):
            await until(lambda: waits(handle, "message"))
            if session == 3:
                await handle.execute_update("upgrade", {"bundle": "handed@2", "by": "ann"})
            await handle.execute_update("handoff", {"by": "ann"})
            await handle.execute_update("message", {"text": "go on", "by": "ann"})
            await until(partial(session_is, handle, session))
        await until(lambda: waits(handle, "message"))
        await handle.execute_update("finish", {"by": "ann"})
        await handle.result()


@play("counted")
async def counted(stack: Stack, client: Client) -> None:
    """A handoff that reaches a limit, which is asked for before the next turn."""
    async with run(stack, client, "counted", [], *[say("ok")] * 3, interactive=True) as handle:
        await until(lambda: waits(handle, "message"))
        used = (await handle.query("status"))["budget"]["used"]["tokens"]
        await handle.execute_update("budget", {"tokens": 2 * used, "by": "ann"})
        await handle.execute_update("handoff", {"by": "ann"})
        await handle.execute_update("message", {"text": "go on", "by": "ann"})
        await until(lambda: waits(handle, "budget"))
        await handle.execute_update("budget", {"tokens": 10**6, "by": "ann"})
        await until(partial(session_is, handle, 2))
        await until(lambda: waits(handle, "message"))
        await handle.execute_update("finish", {"by": "ann"})
        await handle.result()


@play("asked")
async def asked(stack: Stack, client: Client) -> None:
    """A question, a message, an interactive end."""
    turns = (call("ask_human", question="Which?", choices=["x", "y"]), say("x it is"), say("bye"))
    async with run(stack, client, "asked", ["ask_human"], *turns, interactive=True) as handle:
        await decide(handle, "answer", value="x")
        await until(lambda: waits(handle, "message"))
        await handle.signal("message", {"text": "and now?", "by": "ann"})
        await handle.signal("finish", {"by": "ann"})
        await handle.result()


@play("stopped")
async def stopped(stack: Stack, client: Client) -> None:
    """A limit that is raised once, and then not in time."""
    turns = [call("list_files", path=".") for _ in range(3)]
    budget = {"turns": 1, "wait": "1s"}
    async with run(stack, client, "stopped", ["list_files"], *turns, budget=budget) as handle:
        await until(lambda: waits(handle, "budget"))
        await handle.execute_update("budget", {"turns": 2, "by": "ann"})
        await handle.result()


@play("paused")
async def paused(stack: Stack, client: Client) -> None:
    """A pause, a wrong message, a rollover while a decision stands."""
    turns = (call("write_file", path="a.txt", content="a"), say("done"))
    async with run(stack, client, "paused", ["write_file"], *turns) as handle:
        await pending(handle)
        await handle.signal("pause", {"by": "ann"})
        await handle.signal("approve", {"yes": True})
        await handle.execute_update("rollover", {"by": "ann"})
        handle = client.get_workflow_handle("paused")
        await until(lambda: waits(handle, "approval"))
        await decide(handle, "approve")
        await handle.execute_update("resume", {"by": "ann"})
        await handle.result()


@play("cancelled")
async def cancelled(stack: Stack, client: Client) -> None:
    """Cancelled while it waits for a person."""
    turns = (call("write_file", path="a.txt", content="a"), say("never"))
    async with run(stack, client, "cancelled", ["write_file"], *turns) as handle:
        await pending(handle)
        await handle.cancel()
        await fails(handle)


@play("forked")
async def forked(stack: Stack, client: Client) -> None:
    """A fork whose last turn has a call that is decided on anew, with an edit."""
    turns = (call("write_file", path="a.txt", content="a"), say("done"))
    async with run(stack, client, "source", ["write_file"], *turns) as handle:
        await pending(handle)
        stack.runs.append("forked")
        edits = [{"append": "user", "content": "go on"}]
        value = {"fork": {"workflow_id": "source", "checkpoint": 1, "edits": edits}}
        fork = await client.start_workflow("AgentRun", value, id="forked", task_queue=stack.name)
        await decide(fork, "approve")
        await fork.result()
        await handle.cancel()
        await fails(handle)


@play("edited")
async def edited(stack: Stack, client: Client) -> None:
    """An edit while a call waits for a person, which it answers, and one that is refused."""
    turns = (call("write_file", path="a.txt", content="a"), say("done"))
    async with run(stack, client, "edited", ["write_file"], *turns) as handle:
        await pending(handle)
        await handle.execute_update("pause", {"by": "ann"})
        edits = [{"tool_result": "1.0", "content": "written"}, {"append": "user", "content": "go on"}]
        await handle.signal("edit", {"edits": [{"drop": 1}], "by": "ann"})
        await handle.execute_update("edit", {"edits": edits, "by": "ann"})
        await handle.execute_update("resume", {"by": "ann"})
        await handle.result()


@play("unreadable")
async def unreadable(stack: Stack, client: Client) -> None:
    """A worker that cannot read what is stored, and then one that can."""
    read, can = Bundles.manifest, [False]

    async def manifest(self: Bundles, wanted: str) -> Manifest:
        if not can[0]:
            raise IncompatiblePayload(f"manifest {wanted} does not fit this release: field `file.model` is missing")
        return await read(self, wanted)

    with patch.object(Bundles, "manifest", manifest):
        async with run(stack, client, "unreadable", [], say("done")) as handle:
            await until(lambda: waits(handle, "release"))
            can[0] = True
            await handle.execute_update("resume", {"by": "ann"})
            await handle.result()


@play("refused")
async def refused(stack: Stack, client: Client) -> None:
    """A start with an unknown field."""
    async with run(stack, client, "refused", [], say("never"), wrong=1) as handle:
        await fails(handle)


async def histories(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """All executions of a run, oldest first."""
    found = [run async for run in client.list_workflows(f"WorkflowId = '{workflow_id}'")]
    found.sort(key=lambda run: (run.start_time, run.run_id))
    return [await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history() for run in found]


def written(history: WorkflowHistory) -> str:
    """A history as it is committed: without what tells of a machine."""
    body = json.loads(history.to_json())
    return json.dumps(_plain(body), indent=None, separators=(",", ":"), ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("kind") == "TASK_QUEUE_KIND_STICKY":
            return {**value, "name": "sticky"}  # it is called after process and machine
        return {
            key: "worker" if key == "identity" else _plain(item) for key, item in value.items() if key != "stackTrace"
        }
    return [_plain(item) for item in value] if isinstance(value, list) else value


def read(path: Path) -> WorkflowHistory:
    """A committed history."""
    return WorkflowHistory.from_json(path.stem.rpartition("-")[0], path.read_text())


def commands(history: WorkflowHistory) -> list[str]:
    """What the workflow asked for, in order: activities, timers, attributes, its end."""
    asked = []
    for event in history.events:
        kind = event.WhichOneof("attributes") or ""
        body: Any = getattr(event, kind)
        if kind == "activity_task_scheduled_event_attributes":
            asked.append(f"activity {body.activity_type.name}")
        elif kind == "marker_recorded_event_attributes":
            asked.append(f"marker {body.marker_name}")
        elif re.match(r"timer_started|upsert|workflow_execution_(completed|failed|canceled|continued)", kind):
            asked.append(kind.removesuffix("_event_attributes").replace("_", " "))
    return asked


RECORDS = [
    f"workflows.{path.stem}"
    for path in sorted((ROOT / "workflows").glob("*.py"))
    if "temporalio import workflow" not in path.read_text()
]
GUARD = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("pydantic", "pydantic_core", *RECORDS)
)
"""The SDK's sandbox, which refuses clocks, randomness, files and sockets: workers run without it. Modules that never
speak to the runtime are loaded once, or this would take a minute."""


async def replay_all(paths: Iterable[Path], runner: WorkflowRunner | None = None) -> None:
    """Replays committed histories with today's code. Raises for the first that diverges."""
    runner = runner or PlainRunner()
    replayer = Replayer(workflows=WORKFLOWS, data_converter=WORKER_DATA_CONVERTER, workflow_runner=runner)
    for path in paths:
        try:
            await replayer.replay_workflow(read(path))
        except Exception as error:
            raise AssertionError(f"{path.name} does not replay: {error}\n{PATCH}") from error
