"""`perdure runs`: what each open run waits for, and since when."""

import json
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from activities.durations import seconds
from scripts.commands.running import DONE, NO, plain, run
from workers.attributes import missing_search_attributes
from workers.client import connect
from workers.open_runs import KINDS, OpenRun, open_runs


def runs(
    stuck: Annotated[bool, typer.Option("--stuck", help="only those that somebody should look at")] = False,
    waiting: Annotated[str | None, typer.Option(help="only those that wait for this: approval, model, …")] = None,
    after: Annotated[str, typer.Option(help="how long a person may take before a run counts as stuck")] = "1h",
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """List the open runs with what each waits for. With --stuck the exit code is 1 when there are any."""
    try:
        patience = timedelta(seconds=seconds(after))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--after") from None
    if waiting is not None and waiting not in KINDS:
        raise typer.BadParameter(f"{waiting!r} is not one of: {', '.join(KINDS)}", param_hint="--waiting")
    run(_runs(stuck, waiting, patience, as_json))


async def _runs(stuck: bool, waiting: str | None, after: timedelta, as_json: bool) -> int:
    client = await connect()
    found, now = await open_runs(client, waiting), datetime.now(UTC)
    marked = [(each, each.cause.is_stuck(now, after)) for each in found]
    chosen = [(each, is_stuck) for each, is_stuck in marked if is_stuck or not stuck]
    if any(each.seen.asked for each in found) and (missing := await missing_search_attributes(client)):
        said = f"no search attributes {', '.join(missing)}: runs were asked one by one; `perdure setup` registers them"
        print(f"perdure: {said}", file=sys.stderr)
    chosen.sort(key=lambda pair: (not pair[1], pair[0].cause.since, pair[0].seen.workflow_id))
    if as_json:
        json.dump([view(each, is_stuck) for each, is_stuck in chosen], sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(chosen, now, len(found), sum(is_stuck for _, is_stuck in marked))
    return NO if stuck and chosen else DONE


def view(each: OpenRun, is_stuck: bool) -> dict[str, Any]:
    """A run as `--json` gives it."""
    seen, cause = each.seen, each.cause
    return {
        "workflow_id": seen.workflow_id,
        "run_id": seen.run_id,
        "bundle": seen.bundle or None,
        "status": seen.status or None,
        "turn": seen.turn,
        "cost_usd": seen.cost_usd,
        "waits_for": cause.kind,
        "waiting_on": list(seen.waiting_on),
        "since": cause.since.isoformat(),
        "detail": cause.detail,
        "stuck": is_stuck,
        "remedy": cause.remedy,
    }


def _print(chosen: list[tuple[OpenRun, bool]], now: datetime, total: int, stuck: int) -> None:
    console = Console(emoji=False)
    table = Table(box=None, pad_edge=False)
    for name in ("run", "waits for", "for", "turn", "what"):
        table.add_column(name, overflow="fold", no_wrap=name == "for")
    for each, is_stuck in chosen:
        cause = each.cause
        said = "\n".join(
            part for part in (cause.detail, f"→ {cause.remedy}" if is_stuck and cause.remedy else "") if part
        )
        mark = "[bold red]" if is_stuck else ""
        row = (each.seen.workflow_id, cause.kind, age(now - cause.since), str(each.seen.turn), said)
        table.add_row(*(f"{mark if i == 1 else ''}{_plain(text)}" for i, text in enumerate(row)))
    console.print(table)
    kinds = Counter(each.cause.kind for each, _ in chosen)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    console.print(f"{total} open, {stuck} stuck" + (f"; shown: {counts}" if counts else ""))


def _plain(text: str) -> str:
    return plain(text).replace("[", r"\[")


def age(span: timedelta) -> str:
    """`4 s`, `12 min`, `3 h`, `5 d`."""
    left = max(0.0, span.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if left >= 2 * size:
            return f"{left // size:.0f} {unit}"
    return f"{left:.0f} s"
