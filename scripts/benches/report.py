"""Rows of figures as a page with tables, and as plots."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.benches.goals import Figures, goals
from scripts.benches.plots import plot
from scripts.benches.rows import read_rows, table

Row = dict[str, Any]
HEAD = """# Figures

Made by `python -m scripts.bench report` from [rows.jsonl](rows.jsonl); what each bench does stands in
`scripts/bench.py`. Absolute times are this machine's. Compare what was measured in one run.
"""
OURS_SHOWN = (
    *("turns", "tool", "model", "sessions", "executions", "ms_per_turn", "ms_per_turn_start", "ms_per_turn_end"),
    *("ms_ratio", "worker_cpu_ms_per_turn", "server_cpu_ms_per_turn", "history_bytes_per_turn"),
    *("history_events_per_turn", "replay_cpu_seconds", "store_objects", "store_times_payload"),
    *("cold_start_seconds", "of_which_process_start"),
)
ONE_SHOWN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("ms_per_turn", "Milliseconds per turn", lambda value: f"{value:.0f}"),
    ("history_bytes", "History, KB", lambda value: f"{value / 1000:.0f}"),
    ("history_events_per_turn", "Events per turn", lambda value: f"{value:.1f}"),
    ("worker_cpu_seconds", "CPU seconds of the worker", lambda value: f"{value:.2f}"),
    ("server_cpu_seconds", "CPU seconds of the server", lambda value: f"{value:.2f}"),
    ("replay_cpu_seconds", "CPU seconds of a replay", lambda value: f"{value:.2f}"),
)


def report(rows: Path, folder: Path) -> None:
    """Writes README.md and the plots into a folder, from the rows of a file."""
    found = list(read_rows(rows))
    figures = Figures(found)
    parts = [
        HEAD,
        _machines(found),
        _goals(figures),
        *(_by_turns(figures, *shown) for shown in ONE_SHOWN),
        "![bytes of history](bytes.svg) ![milliseconds per turn](pace.svg)\n" * bool(figures.of("one")),
        _flat("Runs at once", found, "many", ("runs", "contender", "status", "runs_per_second", *_CPU)),
        "![runs a second](runs.svg)\n" * bool(figures.of("many")),
        _flat("The worker dies after the effect", found, "crash", ("contender", "status", *_CRASH)),
        _flat("Two results of 3 MB", found, "large", ("contender", "status", "seconds", "history_bytes")),
        *(_ours(row) for row in figures.of("ours")),
        _effects(figures.of("effects")),
        _flat("Telemetry: ratios to none", found, "telemetry ratios", ("rounds", "seconds", "cpu")),
        _flat("`perdure runs`", found, "runs", ("open", "waiting", "listed", "waits_for", "seconds")),
        _flat("A run that waits", found, "waiting run", ("open", *_WAITING)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join(part for part in parts if part))
    plot(figures, folder)


_CPU = ("worker_cpu_seconds", "server_cpu_seconds")
_WAITING = ("history_bytes", "history_events", "store_bytes", "store_objects", "database_bytes")
_CRASH = ("effects", "requests", "seconds", "recovery_seconds")


def _machines(found: list[Row]) -> str:
    machines = [row for row in found if row["bench"] == "machine"]
    if not machines:
        return ""
    last = machines[-1]
    versions = ", ".join(f"{name} {version}" for name, version in last["versions"].items())
    loads = ", ".join(str(row["load"]) for row in machines)
    days = sorted({row["at"][:10] for row in machines})
    return (
        f"- Machine: {last['cpu']}, {last['cores']} cores, {last['memory']}, {last['system']}\n"
        f"- Python {last['python']}; {versions}\n- Date: {', '.join(days)}; load when each bench began: {loads}\n"
    )


def _goals(figures: Figures) -> str:
    body = [(goal.what, goal.limit, goal.shown(figures), goal.verdict(figures)) for goal in goals()]
    return "## Goals\n\n" + table(("what", "wanted", "measured", ""), body)


def _by_turns(figures: Figures, name: str, title: str, shown: Callable[[float], str]) -> str:
    """A table of contenders by turns: medians over the rounds, or what became of it."""
    rows = figures.of("one")
    turns = sorted({row["turns"] for row in rows})
    body = []
    for contender in dict.fromkeys(row["contender"] for row in rows):
        line: list[Any] = [contender]
        for count in turns:
            value = figures.one(contender, count, name)
            said = [r["status"] for r in rows if (r["contender"], r["turns"]) == (contender, count)]
            failed = [each for each in said if each != "ok"]
            line.append(failed[0].split(":")[0] if failed else "" if value is None else shown(value))
        body.append(line)
    return f"## {title}\n\n" + table(("contender", *(f"{count} turns" for count in turns)), body) if body else ""


def _flat(title: str, found: list[Row], bench: str, names: Sequence[str]) -> str:
    rows = [row for row in found if row["bench"] == bench]
    if not rows:
        return ""
    return f"## {title}\n\n" + table(
        [name.replace("_", " ") for name in names], [[r.get(n) for n in names] for r in rows]
    )


def _ours(row: Row) -> str:
    body = [(name.replace("_", " "), row[name]) for name in OURS_SHOWN if row.get(name) is not None]
    return f"## Ours, {row['turns']} turns\n\n" + table(("what", "figure"), body)


def _effects(rows: list[Row]) -> str:
    if not rows:
        return ""
    last = rows[-1]
    verbs = ("times", "median_ms", "put_new", "put", "get", "list", "bytes_written")
    body = [(kind, *(each.get(verb, 0) for verb in verbs)) for kind, each in last["activities"].items()]
    said = ", ".join(f"{name.replace('_', ' ')} {last[name]}" for name in ("ledger_puts", "ledger_ms", "bare_put_ms"))
    head = ("activity", *(verb.replace("_", " ") for verb in verbs))
    return f"## Store requests of each activity\n\nThe ledger, for each effect: {said}.\n\n" + table(head, body)
