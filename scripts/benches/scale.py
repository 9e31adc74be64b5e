"""The model of what runs cost, fitted to measured rows, checked against others, and carried to many runs.

A run costs a fixed part and a part for each turn; a turn costs what its activities do. A day follows from there by
multiplication. docs/scale.md says what is measured in it, what is assumed, and what is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.benches.goals import Figures
from scripts.benches.rows import table

LINEAR = ("history_events", "history_bytes", "store_objects", "store_bytes")
FITTED = (10, 200)
"""The lengths of run that the model is fitted to; the others check it."""

S3_PUT, S3_GET, S3_MONTH = 0.005 / 1000, 0.0004 / 1000, 0.023 / 1e9
"""US dollars: a write or a listing, a read, a byte for a month (list prices of S3 Standard in us-east-1)."""


@dataclass(frozen=True)
class Line:
    """`fixed` for a run and `turn` for each turn."""

    fixed: float
    turn: float

    def at(self, turns: float) -> float:
        """For a run of so many turns."""
        return self.fixed + self.turn * turns


@dataclass(frozen=True)
class Load:
    """What is assumed of the work: the shares of calls that are quick local reads, activities and effects add to 1."""

    tasks_a_day: int = 100_000
    turns: int = 20
    local: float = 0.6
    activity: float = 0.3
    effect: float = 0.1
    peak: float = 4.0
    model_seconds: float = 10.0

    @property
    def turns_a_second(self) -> float:
        """On average."""
        return self.tasks_a_day * self.turns / 86_400


def fit(figures: Figures, contender: str, name: str) -> Line | None:
    """The line through the two fitted lengths."""
    points = [(turns, figures.one(contender, turns, name)) for turns in FITTED]
    (short, low), (long, high) = points
    if low is None or high is None:
        return None
    slope = (high - low) / (long - short)
    return Line(low - slope * short, slope)


def checked(figures: Figures) -> str:
    """The model against the lengths that it was not fitted to."""
    body: list[Sequence[Any]] = []
    lengths = sorted({row["turns"] for row in figures.of("one")} - set(FITTED))
    for contender in ("perdure", "perdure-activity"):
        for name in LINEAR:
            line = fit(figures, contender, name)
            for turns in lengths if line else ():
                found = figures.one(contender, turns, name)
                if line and found:
                    said = line.at(turns)
                    body.append((contender, name, turns, round(said), round(found), f"{said / found - 1:+.1%}"))
    return table(("contender", "what", "turns", "model", "measured", "off by"), body)


def requests(figures: Figures) -> dict[str, tuple[float, float]]:
    """Store writes (listings among them, as they are priced so) and reads of each activity, per time."""
    rows = figures.of("effects")
    activities = rows[-1]["activities"] if rows else {}
    return {
        kind: (each.get("put_new", 0) + each.get("put", 0) + each.get("list", 0), each.get("get", 0))
        for kind, each in activities.items()
    }


def carried(figures: Figures, load: Load) -> list[tuple[str, str]]:
    """The day of that load. Empty where something needed was not measured."""
    lines = {name: fit(figures, "perdure", name) for name in LINEAR}
    normal = {name: fit(figures, "perdure-activity", name) for name in LINEAR}
    asked, cpu = requests(figures), figures.many("perdure", 100, "worker_cpu_seconds")
    served = figures.many("perdure", 100, "server_cpu_seconds")
    if not asked or cpu is None or served is None:
        return []

    def mean(name: str) -> float:
        """Of a run; a call that is no local read costs what an activity does."""
        quick, slow = lines[name], normal[name]
        assert quick is not None
        assert slow is not None
        return load.local * quick.at(load.turns) + (1 - load.local) * slow.at(load.turns)

    writes, reads = (_requests(asked, load, which) for which in (0, 1))
    now, most = load.turns_a_second, load.turns_a_second * load.peak
    per_turn = cpu * 1000 / 1000, served * 1000 / 1000  # 100 runs of 10 turns are 1,000 turns
    day = load.tasks_a_day
    normals = load.activity + load.effect
    return [
        ("turns a second, mean and peak", f"{now:.0f}, {most:.0f}"),
        ("events a run", f"{mean('history_events'):.0f}"),
        ("history a run, KB; a day, GB", f"{mean('history_bytes') / 1e3:.0f}; {mean('history_bytes') * day / 1e9:.1f}"),
        ("workflow tasks a second at the peak", f"{most * (1 + normals):.0f}"),
        ("activity tasks through task queues a second at the peak", f"{most * normals:.0f}"),
        ("Temporal Cloud actions a second at the peak", f"{most * (actions_of_turn(load) + 3 / load.turns):.0f}"),
        (
            "store writes, reads a second at the peak",
            f"{writes / load.turns * most:.0f}, {reads / load.turns * most:.0f}",
        ),
        ("S3 requests a day, USD", f"{day * (writes * S3_PUT + reads * S3_GET):.0f}"),
        ("stored a day, GB", f"{mean('store_bytes') * day / 1e9:.1f}"),
        ("storage for a month of it, USD a month", f"{mean('store_bytes') * day * 30 * S3_MONTH:.0f}"),
        ("model calls under way at the peak", f"{most * load.model_seconds:.0f}"),
        ("worker cores at the peak", f"{most * per_turn[0] / 1000:.1f}"),
        ("server cores at the peak, as the dev server has it", f"{most * per_turn[1] / 1000:.1f}"),
    ]


def actions_of_turn(load: Load) -> float:
    """Billed actions: the model's activity, the tool's (a local one too), a tenth of an upsert, and a heartbeat for
    each 8 seconds of a model call."""
    return 2.1 + load.model_seconds // 8


def _requests(asked: dict[str, tuple[float, float]], load: Load, which: int) -> float:
    """Store requests of one run."""
    per = {kind: each[which] for kind, each in asked.items()}
    calls = (
        load.local * per.get("tool.read bench_read", 0)
        + load.activity * per.get("tool.run bench_look", 0)
        + load.effect * per.get("tool.run bench_touch", 0)
    )
    fixed = per.get("run.open", 0) + per.get("run.close", 0) + per["model.turn"]
    return fixed + load.turns * (per["model.turn"] + calls)


def scale(rows: list[dict[str, Any]], load: Load) -> str:
    """Both tables."""
    figures = Figures(rows)
    assumed = (
        f"{load.tasks_a_day:,} tasks a day of {load.turns} turns, one call a turn: {load.local:.0%} local reads, "
        f"{load.activity:.0%} other reads, {load.effect:.0%} effects; the peak is {load.peak:g} times the mean; "
        f"a model call takes {load.model_seconds:g} s"
    )
    return f"{checked(figures)}\n{assumed}:\n\n{table(('what', 'figure'), carried(figures, load))}"
