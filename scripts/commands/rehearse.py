"""`perdure rehearse RUN --bundle NAME@V`: what a run did, judged as another bundle would judge it."""

import dataclasses
import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from activities.bundles import Bundles
from activities.errors import Failure
from activities.gateway import Gateway
from activities.manifest import Manifest
from activities.routing import Router
from activities.store import open_store
from activities.tools import load_tools
from activities.world import spec_of
from scripts.asking_again import ask_again, price_of
from scripts.commands.running import DONE, NO, Refused, plain, run
from scripts.past import steps_of
from scripts.rehearsal import Asked, Rehearsal, asked_turns
from scripts.rehearsal import rehearse as rehearsed
from workers.settings import Settings, read_settings
from workflows.records import Usage


def rehearse(
    which: Annotated[str, typer.Argument(metavar="RUN", help="a workflow id; RUN@k: its first k turns only")],
    bundle: Annotated[str, typer.Option(help="the bundle to rehearse with: NAME or NAME@VERSION")],
    model: Annotated[bool, typer.Option("--model", help="ask its model too, at each context; this costs")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --model: do not ask before spending")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """Hold a run's recorded answers and results against another bundle: prompt, tools, policy, limits. Offline.

    No tool is run, nothing is written, and without --model nothing is asked. Exit code 1 when anything would go
    otherwise.
    """
    if model and as_json and not yes:
        raise typer.BadParameter("with --json it cannot ask whether to spend: add --yes", param_hint="--model")
    run(_rehearse(which, bundle, model, yes, as_json))


async def _rehearse(which: str, bundle: str, model: bool, yes: bool, as_json: bool) -> int:
    settings = read_settings()
    store, registry = open_store(settings.store), load_tools(settings.tool_modules)
    bundles = Bundles(store, settings.bundle_folders)
    try:
        turns = asked_turns(await steps_of(store, which))
        if not turns:
            raise Refused(f"{which} has no turn yet")
        pinned = {digest: await bundles.manifest(digest) for digest in {turn.bundle for turn in turns}}
        now = bundles.read(bundle, lambda globs: [spec_of(tool) for tool in registry.match(globs)])
        found = await rehearsed(turns, pinned, now, registry)
    except Failure as error:
        raise Refused(error.message) from None
    spent = await _ask(turns, now, settings, found, yes, as_json) if model else None
    if as_json:
        body = {**dataclasses.asdict(found), "usage": found.usage.model_dump(), "turns": found.turns}
        json.dump({**body, "asked": spent.model_dump() if spent else None}, sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        show(found, spent)
    return NO if found.findings else DONE


async def _ask(
    turns: list[Asked], now: Manifest, settings: Settings, found: Rehearsal, yes: bool, as_json: bool
) -> Usage:
    """Says the price, asks for a yes, and asks the model."""
    price = price_of(turns, found.sizes, now)
    names = ", ".join(route.model for route in now.file.model)
    cost = f"about {price.cost_usd:.4f} USD" if price.cost_usd else "at a price that the bundle does not name"
    tokens = f"{price.input_tokens} tokens to read and about {price.output_tokens} to write"
    print(f"{len(turns)} requests to {names}: {tokens}, {cost}", file=sys.stderr if as_json else sys.stdout)
    if not yes and not typer.confirm("Ask?"):
        raise Refused("nothing was asked")
    gateway = Gateway(settings.lookup, settings.secrets())
    try:
        return await ask_again(turns, now, Router(gateway), found)
    finally:
        await gateway.close()


def show(found: Rehearsal, spent: Usage | None) -> None:
    """For a terminal."""
    out = Console(emoji=False, highlight=False)
    out.print(Text(f"{found.turns} turns of {found.then}, as {found.now} would have them"))
    for line in sent_lines(found.sent):
        out.print(Text(f"  {plain(line)}", style="dim"))
    if found.findings:
        table = Table("turn", "call", "what", "", box=None, pad_edge=False)
        for each in sorted(found.findings, key=lambda finding: finding.turn):
            table.add_row(str(each.turn), each.call or "", each.kind.replace("_", " "), Text(plain(each.said)))
        out.print(table)
    then, now = max(size.then for size in found.sizes), max(size.now for size in found.sizes)
    out.print(
        f"largest request: {then} tokens then, about {now} now; cost at its prices: {found.usage.cost_usd:.4f} USD"
    )
    if spent is not None:
        out.print(f"asking cost {spent.cost_usd:.4f} USD: {spent.input_tokens}+{spent.output_tokens} tokens")
    out.print(
        "nothing would go otherwise" if not found.findings else f"{len(found.findings)} things would go otherwise"
    )


def sent_lines(sent: dict[str, Any]) -> list[str]:
    """What would be sent differently, line by line."""
    if not sent:
        return ["every request would be the same"]
    lines = ["prompt:", *(f"  {line}" for line in sent["prompt"])] if "prompt" in sent else []
    for name, tools in sent.get("tools", {}).items():
        lines += [f"tools {name}: {', '.join(tools)}"] if tools else []
    lines += sent.get("model", [])
    if "tool_output" in sent:
        lines.append(
            f"tool results are cut at {sent['tool_output']['now']} characters, not {sent['tool_output']['then']}"
        )
    return lines
