"""The bench runs, each of its parts, with very little to do."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.all
ROOT = Path(__file__).resolve().parents[2]


def bench(tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    rows = tmp_path / "rows.jsonl"
    command = [sys.executable, "-m", "scripts.bench", *arguments, "--rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [row for row in map(json.loads, rows.read_text().splitlines()) if row["bench"] != "machine"]


def test_long_run_hands_sessions_over_and_every_turn_is_taken_once(tmp_path: Path) -> None:
    [row] = bench(tmp_path, "--turns", "90", "--sessions", "--model", "inside")
    assert row["sessions"] > 1
    assert row["by_event"]["MARKER_RECORDED"][0] == 90
    assert row["history_bytes_per_turn"] < 4000


def test_cold_worker_goes_on(tmp_path: Path) -> None:
    [row] = bench(tmp_path, "--turns", "30", "--cold")
    assert row["cold_start_seconds"] > row["of_which_process_start"] > 0


def test_side_by_side_without_peers(tmp_path: Path) -> None:
    what = ("--what", "one", "many", "crash", "large", "--turns", "3", "--runs", "3")
    rows = bench(tmp_path, "compare", *what)
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["contender"] for row in rows} == {"floor", "perdure", "perdure-activity", "perdure-http"}
    assert {row["effects"] for row in rows if row["bench"] == "crash"} == {1}
    assert {row["requests"] for row in rows if row["bench"] == "crash"} == {2}


def test_effects_collector_and_runs(tmp_path: Path) -> None:
    [effects] = bench(tmp_path, "effects", "--turns", "4")
    assert effects["ledger_puts"] == 2  # the intent with the first claim, and the outcome
    *_, ratios = bench(tmp_path, "collector", "--turns", "2", "--runs", "2")
    assert set(ratios["seconds"]) == {"none", "good", "hangs", "refuses", "floods"}
    *_, first, second, waiting = bench(tmp_path, "runs", "--open", "10")
    assert [(row["listed"], row["waits_for"]) for row in (first, second)] == [(10, ["no_worker"]), (10, ["approval"])]
    assert waiting["history_events"] < 20
