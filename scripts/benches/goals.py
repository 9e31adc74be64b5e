"""What the figures must show, as ratios within one run on one machine."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

PEERS = ("loop", "openai", "pydantic", "harness", "actant")
REFERENCE = "ref"
"""The peers' line that passes references to a transcript in SQLite: no product, but the least that one must do."""


class Figures:
    """Rows, looked up."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def of(self, bench: str) -> list[dict[str, Any]]:
        """The rows of one bench."""
        return [row for row in self._rows if row["bench"] == bench]

    def one(self, contender: str, turns: int, name: str) -> float | None:
        """A figure of a run by itself: the median over its rounds."""
        return self._median("one", name, contender=contender, turns=turns)

    def many(self, contender: str, runs: int, name: str) -> float | None:
        """A figure of runs at once."""
        return self._median("many", name, contender=contender, runs=runs)

    def crash(self, contender: str, name: str) -> float | None:
        """The worst over the rounds."""
        found = [row[name] for row in self.of("crash") if row["contender"] == contender and name in row]
        return max(found, default=None)

    def _median(self, bench: str, name: str, **wanted: Any) -> float | None:
        found = [
            row[name]
            for row in self.of(bench)
            if row["status"] == "ok"
            and row.get(name) is not None
            and all(row[key] == value for key, value in wanted.items())
        ]
        return median(found) if found else None


@dataclass(frozen=True)
class Goal:
    """A figure with its limit: at most, or with `least` at least."""

    what: str
    bound: float
    measured: Callable[[Figures], float | None]
    least: bool = False

    @property
    def limit(self) -> str:
        """In words."""
        return f"{'at least' if self.least else 'at most'} {self.bound:g}"

    def shown(self, figures: Figures) -> str:
        """The figure."""
        value = self.measured(figures)
        return "not measured" if value is None else f"{value:.2f}"

    def verdict(self, figures: Figures) -> str:
        """Whether it holds."""
        value = self.measured(figures)
        if value is None:
            return ""
        return "yes" if (value >= self.bound if self.least else value <= self.bound) else "**no**"


_SIZE = "history_bytes_per_turn"


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _best_peer(figures: Figures, turns: int) -> float | None:
    found = (figures.one(peer, turns, "ms_per_turn") for peer in PEERS)
    return min((value for value in found if value is not None), default=None)


def _pace(figures: Figures, contender: str, turns: int = 50) -> float | None:
    return figures.one(contender, turns, "ms_per_turn")


def _longest(figures: Figures) -> float | None:
    found = [row["ms_ratio"] for row in figures.of("ours") if row["turns"] >= 5000 and row["sessions"] > 1]
    return found[-1] if found else None


def _many(figures: Figures, name: str) -> float | None:
    return _ratio(figures.many("perdure", 100, name), figures.many("loop", 100, name))


def _slowest_listing(figures: Figures) -> float | None:
    return max((max(row["seconds"]) for row in figures.of("runs") if row["open"] >= 1000), default=None)


def _telemetry(figures: Figures) -> float | None:
    found = figures.of("telemetry ratios")
    return max(found[-1]["seconds"].values()) if found else None


def goals() -> list[Goal]:
    """All of them."""
    return [
        Goal(
            "ms per turn at 50 turns, local read tool, to the best peer",
            0.65,
            lambda f: _ratio(_pace(f, "perdure"), _best_peer(f, 50)),
        ),
        Goal(
            "ms per turn at 50 turns, normal activity, to the reference-passing loop",
            1.1,
            lambda f: _ratio(_pace(f, "perdure-activity"), _pace(f, REFERENCE)),
        ),
        Goal(
            "ms per turn at 50 turns, local read tool, to the floor",
            1.25,
            lambda f: _ratio(_pace(f, "perdure"), _pace(f, "floor")),
        ),
        Goal("runs a second, 100 runs of 10 turns, to loop", 1.5, lambda f: _many(f, "runs_per_second"), least=True),
        Goal("worker CPU of 100 runs of 10 turns, to the loop", 1, lambda f: _many(f, "worker_cpu_seconds")),
        Goal("KB of history per turn at 200", 2.5, lambda f: _thousands(f.one("perdure", 200, _SIZE))),
        Goal("ms per turn at the end to the start, 5,000 turns", 1.2, _longest),
        Goal(
            "CPU of replaying 200 turns, to the reference-passing loop",
            1,
            lambda f: _ratio(f.one("perdure", 200, "replay_cpu_seconds"), f.one(REFERENCE, 200, "replay_cpu_seconds")),
        ),
        Goal("effects when the worker dies after one", 1, lambda f: f.crash("perdure", "effects")),
        Goal("seconds to the result after that death", 15, lambda f: f.crash("perdure", "recovery_seconds")),
        Goal("time with the worst collector to none", 1.1, _telemetry),
        Goal("seconds of `perdure runs`, 1,000 open", 5, _slowest_listing),
    ]


def _thousands(value: float | None) -> float | None:
    return None if value is None else value / 1000
