"""The plots, as SVG: small, and the same for the same rows."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from scripts.benches.goals import Figures

BYTES_LIMIT = 50e6
"""Bytes of history at which Temporal ends an execution."""
STYLES = {"perdure": "#0b6", "perdure-activity": "#6c9", "perdure-http": "#084", "floor": "#999", "ref": "#555"}
OTHERS = ("#d62728", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2")


def plot(figures: Figures, folder: Path) -> None:
    """bytes.svg, pace.svg and runs.svg, of what there is."""
    mpl.rcParams["svg.hashsalt"] = "perdure"
    if figures.of("one"):
        _lines(figures, "history_bytes", "bytes of history", folder / "bytes.svg", limit=BYTES_LIMIT)
        _lines(figures, "ms_per_turn", "milliseconds per turn", folder / "pace.svg")
    if figures.of("many"):
        _bars(figures, folder / "runs.svg")


def _colours(figures: Figures, bench: str) -> dict[str, str]:
    names = list(dict.fromkeys(row["contender"] for row in figures.of(bench)))
    others = [name for name in names if name not in STYLES]
    return {name: STYLES.get(name) or OTHERS[others.index(name) % len(OTHERS)] for name in names}


def _lines(figures: Figures, name: str, label: str, path: Path, limit: float | None = None) -> None:
    """One line for each contender, over the turns; it ends where the contender did."""
    made = Figure(figsize=(6, 4.2), layout="constrained")
    axes = made.subplots()
    turns = sorted({row["turns"] for row in figures.of("one")})
    for contender, colour in _colours(figures, "one").items():
        points = [(count, figures.one(contender, count, name)) for count in turns]
        there = [(count, value) for count, value in points if value is not None]
        axes.loglog([x for x, _ in there], [y for _, y in there], "o-", color=colour, label=contender, markersize=4)
    if limit is not None:
        axes.axhline(limit, color="#d62728", linestyle=":", linewidth=1)
    axes.set_xlabel("turns")
    axes.set_ylabel(label)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    _save(made, path)


def _bars(figures: Figures, path: Path) -> None:
    counts = sorted({row["runs"] for row in figures.of("many")})
    made = Figure(figsize=(3.5 * len(counts) + 1, 4.2), layout="constrained")
    grid: Any = made.subplots(1, len(counts), squeeze=False)
    for axes, count in zip(grid[0], counts, strict=True):
        for contender, colour in _colours(figures, "many").items():
            axes.bar(contender, figures.many(contender, count, "runs_per_second") or 0, color=colour)
        axes.set_title(f"{count} runs of 10 turns at once", fontsize=9)
        axes.set_ylabel("runs a second")
        axes.tick_params(axis="x", rotation=60, labelsize=8)
    _save(made, path)


def _save(made: Figure, path: Path) -> None:
    made.savefig(path, metadata={"Date": None})
