"""`perdure verify RUN`: walks the chain of a run, its bodies and its segments."""

import json

from rich.console import Console
from rich.markup import escape

from activities.store import open_store
from scripts.commands.checkpoints import AsJson, Run
from scripts.commands.running import NO, run
from scripts.records import place, survey, thread_of, walk
from workers.settings import read_settings


def verify(which: Run, as_json: AsJson = False) -> None:
    """Check every checkpoint of a run, each link, every body and every segment. Exit code 1: something is wrong."""
    run(_verify(which, as_json))


async def _verify(which: str, as_json: bool) -> int:
    store = open_store(read_settings().store)
    thread = await thread_of(store, which)
    lines = await survey(store, thread)
    faults = [f"{line.branch}/{line.sequence}: {line.state}" for line in lines if not line.good]
    faults += await walk(store, thread, lines)
    faults = list(dict.fromkeys(faults))
    if as_json:
        print(json.dumps({"thread": thread, "checkpoints": len(lines), "faults": faults}, indent=2))
    else:
        console = Console(emoji=False, soft_wrap=True)
        for fault in faults:
            console.print(f"[red]{escape(fault)}[/red]")
        console.print(f"{escape(thread)}: {len(lines)} checkpoints, {len(faults)} faults, in {escape(place(thread))}")
        if faults:
            console.print("Restore what is named from a backup of the store, or fork from a checkpoint before it.")
    return NO if faults else 0
