"""`perdure build-id` and `perdure patches`: what a change of the workflow code means for the runs that are open."""

import dataclasses
import json
from typing import Annotated

import typer

from scripts.commands.running import DONE, NO, plain, run
from workers.builds import build_id as derive
from workers.client import connect, converter_of
from workers.open_runs import listed
from workers.patches import patches_in, sort_runs
from workers.replaying import Replayed, histories_of, replay_with_patches
from workers.settings import read_settings


def build_id(as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False) -> None:
    """Print the build id of this code: PERDURE_BUILD_ID=$(perdure build-id) perdure worker."""
    print(json.dumps({"build_id": derive()}) if as_json else derive())


def patches(as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False) -> None:
    """List the patches of the workflow code, and which open runs still need the old way of each.

    Every open run is replayed with this code, without any call. See docs/decisions/0008-patches.md for the three steps.
    Exit code 1 when a run does not replay.
    """
    run(_patches(as_json))


async def _patches(as_json: bool) -> int:
    found, settings = patches_in(), read_settings()
    client, unread = await connect(settings), list[Replayed]()
    if found:
        runs = [(seen.workflow_id, seen.run_id) async for seen in listed(client)]
        converter = converter_of(settings, worker=True)
        replayed = [one async for one in replay_with_patches(histories_of(client, runs), converter)]
        sort_runs(found, replayed)
        unread = [one for one in replayed if one.fault is not None]
    if as_json:
        each = [{**dataclasses.asdict(patch), "next": patch.next} for patch in found]
        faults = [{"workflow_id": one.workflow_id, "fault": one.fault} for one in unread]
        print(json.dumps({"patches": each, "not_replayed": faults}, ensure_ascii=False, indent=1))
        return NO if unread else DONE
    for patch in found:
        print(f"{patch.id}{' (deprecated)' if patch.deprecated else ''}: {', '.join(patch.where)}")
        print(f"  open runs on the old way: {plain(_named(patch.old))}; on the new way: {len(patch.new)}")
        print(f"  next: {patch.next}")
    if not found:
        print("the workflow code has no patches")
    for one in unread:
        print(plain(f"{one.workflow_id} does not replay with this code: {one.fault}"))
    return NO if unread else DONE


def _named(runs: list[str]) -> str:
    shown = ", ".join(runs[:5])
    return f"{len(runs)}: {shown}{', …' if len(runs) > 5 else ''}" if runs else "none"
