"""What a run costs: history, store and time for each turn, as the run grows; and side by side with others.

    python -m scripts.bench --turns 200           bytes and events of history, bytes of the store, each per turn
    python -m scripts.bench --turns 5000          milliseconds per turn at the start and at the end
    python -m scripts.bench --turns 5000 --sessions    the same with a context of 60,000 tokens
    python -m scripts.bench --turns 1000 --cold   the worker is killed near the end: seconds until a new one goes on
    python -m scripts.bench --turns 1000 --fork   the run is forked near its end: seconds until the fork's first turn
    python -m scripts.bench compare               ours and the floor; with --peers FOLDER the peers too
    python -m scripts.bench effects               what the ledger adds to an effect
    python -m scripts.bench collector             what telemetry costs, with good collectors and bad ones
    python -m scripts.bench runs                  `perdure runs` with a thousand open runs
    python -m scripts.bench scale                 the model of docs/scale.md against those rows, and what follows
    python -m scripts.bench report                table and plots of the rows that --rows FILE collected

Every turn is 500 B of model text and one call of a tool with a 2 KB result, both random. The model answers at once.
Each bench runs on a server of its own in a temporary folder and needs nothing but this machine; the numbers are for
comparing two things on one machine. docs/scale.md says what follows from them for many runs.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.benches import comparing, contenders, effects, open_runs, ours, peers, telemetry
from scripts.benches.rig import server
from scripts.benches.rows import Rows, read_rows
from scripts.benches.scale import Load, scale


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--rows", type=Path, help="also append each row of figures to this file, as JSON lines")
    shared.add_argument("--rounds", type=int, default=1, help="how often each measurement is repeated, in turn")
    made = top.add_subparsers(dest="command", required=True)
    one = made.add_parser("ours", parents=[shared], help="one run of ours (the default)")
    one.add_argument("--turns", type=int, default=200)
    one.add_argument("--cold", action="store_true", help="kill the worker 20 turns before the end")
    one.add_argument("--fork", action="store_true", help="fork it at the end")
    one.add_argument("--sessions", action="store_true", help="a context of 60,000 tokens, so that sessions hand off")
    one.add_argument("--tool", choices=("bench_read", "bench_look", "bench_touch"), default="bench_read")
    one.add_argument("--model", choices=("http", "inside"), default="http", help="where the model is")
    both = made.add_parser("compare", parents=[shared], help="side by side")
    both.add_argument("--what", nargs="+", choices=("one", "many", "crash", "large"), default=["one", "many", "crash"])
    both.add_argument("--turns", type=int, nargs="+", default=[10, 50, 200])
    both.add_argument("--runs", type=int, nargs="+", default=[100])
    both.add_argument("--only", nargs="+", help="these contenders only")
    both.add_argument("--peers", type=Path, help="the folder of the peers' scripts")
    both.add_argument(
        "--venv", type=Path, default=Path(".perdure/peers"), help="the peers' environment; made if need be"
    )
    both.add_argument("--cap", type=float, default=300, help="seconds that a peer's run may take")
    ledger = made.add_parser("effects", parents=[shared], help="what the ledger costs")
    ledger.add_argument("--turns", type=int, default=200)
    dear = made.add_parser("collector", parents=[shared], help="what telemetry costs")
    dear.add_argument("--turns", type=int, default=20)
    dear.add_argument("--runs", type=int, default=10)
    listing = made.add_parser("runs", parents=[shared], help="`perdure runs` with many open runs")
    listing.add_argument("--open", type=int, default=1000)
    told = made.add_parser("report", parents=[shared], help="table and plots")
    told.add_argument("--to", type=Path, default=Path("docs/bench"))
    carried = made.add_parser("scale", parents=[shared], help="the model of docs/scale.md")
    carried.add_argument("--tasks", type=int, default=Load.tasks_a_day, help="tasks a day")
    carried.add_argument("--turns", type=int, default=Load.turns, help="turns of a task")
    return top


async def compare(options: argparse.Namespace, rows: Rows) -> None:
    """All contenders in turn."""
    with server() as (folder, temporal):
        every: list[contenders.Contender] = [*contenders.native(folder, temporal)]
        if options.peers is None:
            print("bench: no --peers FOLDER: only ours and the floor are measured", file=sys.stderr)
        else:
            every += peers.peers(options.peers.resolve(), options.venv.resolve(), folder, temporal, options.cap)
        chosen = [each for each in every if not options.only or each.name in options.only]
        if "one" in options.what:
            await comparing.one(chosen, rows, options.turns, options.rounds)
        if "many" in options.what:
            await comparing.many(chosen, rows, options.runs, 10, options.rounds)
        if "crash" in options.what:
            await comparing.crash(chosen, rows, options.rounds)
        if "large" in options.what:
            await comparing.large(chosen, rows)


async def measure(options: argparse.Namespace, rows: Rows) -> None:
    """One of the benches."""
    if options.command == "compare":
        await compare(options, rows)
        return
    with server() as (folder, temporal):
        if options.command == "ours":
            figures = await ours.measure(folder, temporal, options)
            if options.rows is not None:
                rows.add("ours", **figures)
            print(json.dumps(figures, indent=2))
        elif options.command == "effects":
            await effects.effects(folder, temporal, rows, options.turns)
        elif options.command == "collector":
            await telemetry.telemetry(folder, temporal, rows, options.runs, options.turns, options.rounds)
        elif options.command == "runs":
            await open_runs.open_runs(folder, temporal, rows, options.open)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given.insert(0, "ours")
    options = parser().parse_args(given)
    if options.command == "report":
        from scripts.benches.report import report  # it needs matplotlib, which only development has

        report(options.rows or options.to / "rows.jsonl", options.to)
        return
    if options.command == "scale":
        found = list(read_rows(options.rows or Path("docs/bench/rows.jsonl")))
        print(scale(found, Load(tasks_a_day=options.tasks, turns=options.turns)))
        return
    rows = Rows(options.rows)
    if options.rows is not None:
        rows.machine()
    asyncio.run(measure(options, rows))
    sys.stdout.flush()
    os._exit(0)  # the SDK's threads can crash the interpreter's own way out


if __name__ == "__main__":
    main()
