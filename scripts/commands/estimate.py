"""`perdure estimate`: what starting again from the beginning would have cost."""

import dataclasses
import json
import sys
from typing import Annotated

import typer

from scripts.commands.running import DONE, Refused, run
from workers.client import connect
from workers.estimate import Estimate, look_at
from workers.estimate import estimate as reckon


def estimate(
    runs: Annotated[list[str], typer.Argument(help="workflow ids of runs")],
    per_month: Annotated[float | None, typer.Option(min=0, help="runs a month; without it, the pace of these")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """From real runs: duration, cost, crashes seen, and what a month of starting again would lose."""
    run(_estimate(runs, per_month, as_json))


async def _estimate(names: list[str], per_month: float | None, as_json: bool) -> int:
    client = await connect()
    found = []
    for name in dict.fromkeys(names):
        runs = await look_at(client, name)
        if not runs:
            raise Refused(f"there is no run {name!r}; `temporal workflow list` shows those that there are")
        found += runs
    told = reckon(found, per_month)
    if as_json:
        json.dump(
            {**dataclasses.asdict(told), "each": [dataclasses.asdict(one) for one in found]}, sys.stdout, default=str
        )
        print()
    else:
        _print(told)
    return DONE


def _print(told: Estimate) -> None:
    print(f"{told.runs} runs, {told.crashes} crashes of their workers seen ({told.crashes_per_run:.2f} a run)")
    print(
        f"a run takes {told.mean_seconds / 60:.1f} min and costs {told.mean_cost_usd:.4f} USD; so would starting again"
    )
    print(f"at {told.runs_per_month:.0f} runs a month, starting again would lose each month at least:")
    print(f"  {told.lost_usd_per_month:.2f} USD and {told.lost_seconds_per_month / 3600:.1f} h of running")
    if not told.crashes:
        print("no crash was seen: on these runs alone durable execution has saved nothing yet")
