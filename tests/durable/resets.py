"""Paths of runs that were set back."""

import json
from functools import partial
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.durable.playing import decide, play, run, waits
from tests.integration.kit import Stack, call, say, until


@play("set_back")
async def set_back(stack: Stack, client: Client) -> None:
    """A reset to the beginning: a call that was made before is asked about and refused, and all is undone."""
    turns = (call("write_file", path="a.txt", content="a"), say("done"))
    async with run(stack, client, "set_back", ["write_file"], *turns, interactive=True) as handle:
        await decide(handle, "approve")
        await until(lambda: waits(handle, "message"))
        reset = ("workflow", "reset", "-w", "set_back", "-t", "FirstWorkflowTask", "--reapply-exclude", "All")
        done = await stack.temporal(*reset, "--reason", "the corpus")
        assert done.returncode == 0, done.stderr
        handle = client.get_workflow_handle("set_back")
        await decide(handle, "deny", reason="no more of it")
        await until(lambda: waits(handle, "message"))
        await handle.signal("compensate", {"by": "ann"})
        logged = await until(partial(refused_one, handle))
        line = logged["reason"][logged["reason"].index("{") : logged["reason"].rindex("}") + 1]
        await handle.execute_update("compensate", json.loads(line))
        await handle.execute_update("finish", {"by": "ann"})
        await handle.result()


async def refused_one(handle: WorkflowHandle[Any, Any]) -> dict[str, Any] | None:
    """The first message that could not be used."""
    return next((each for each in await handle.query("decisions") if each["decision"] == "rejected"), None)
