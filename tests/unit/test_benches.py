"""The bench's own parts: its model, and the page that it makes of rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.judgement import HANDOFF, SUMMARY, Judgement
from activities.structured import read_structured
from scripts.benches.goals import Figures, goals
from scripts.benches.model import completion
from scripts.benches.report import report
from scripts.benches.workload import Mark, letters, result


def asked(*texts: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text} for text in texts], **more}
    answer: dict[str, Any] = completion(json.dumps(body).encode())["choices"][0]["message"]
    return answer


def test_model_calls_what_follows_the_last_mark_and_ends_at_the_last_turn() -> None:
    goal, first = str(Mark(0, 2, "bench_look", 300)), result(1, 2, "bench_look", 300)
    assert len(first) == 300
    for texts, number in (([goal], 1), ([goal, letters("x", 500), first], 2)):
        [call] = asked(*texts)["tool_calls"]
        assert call["function"]["name"] == "bench_look"
        assert json.loads(call["function"]["arguments"]) == {"number": number, "turns": 2, "size": 300}
    assert "tool_calls" not in asked(goal, first, result(2, 2, "bench_look", 300))


@pytest.mark.parametrize("wanted", [HANDOFF, SUMMARY])
async def test_model_hands_a_session_over_such_that_the_next_goes_on(wanted: Judgement) -> None:
    form = {"type": "json_schema", "json_schema": {"name": wanted.name, "schema": wanted.schema}}
    said = asked(result(7, 9, "bench_read", 300), wanted.words, response_format=form)
    value, wrong = await read_structured(said["content"], wanted.schema)
    assert wrong is None
    [call] = asked(f"What was left: {json.dumps(value)}")["tool_calls"]
    assert json.loads(call["function"]["arguments"])["number"] == 8


def one(contender: str, turns: int, **figures: Any) -> dict[str, Any]:
    return {"bench": "one", "contender": contender, "turns": turns, "round": 0, "status": "ok", **figures}


def test_goal_is_a_ratio_of_medians_and_an_unmeasured_one_says_so() -> None:
    paces = {"loop": (80, 90, 400), "openai": (200,), "perdure": (50, 60, 55), "floor": (50,)}
    rows = [one(name, 50, ms_per_turn=pace) for name, every in paces.items() for pace in every]
    figures = Figures(rows)
    peer, reference, floor = goals()[:3]
    assert peer.shown(figures) == f"{55 / 90:.2f}"
    assert peer.verdict(figures) == "yes"
    assert reference.shown(figures) == "not measured"
    assert floor.verdict(Figures([*rows, *(one("floor", 50, ms_per_turn=1) for _ in range(9))])) == "**no**"


def test_report_shows_where_a_contender_ended(tmp_path: Path) -> None:
    measured = {"ms_per_turn": 90.0, "history_bytes": 400_000}
    rows = [
        one("loop", 10, **measured),
        {**one("loop", 200), "status": "failed: history is too large"},
        {"bench": "many", "contender": "loop", "runs": 100, "status": "ok", "runs_per_second": 7.5},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report(tmp_path / "rows.jsonl", tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| loop | 90 | failed |" in page
    for plot in ("bytes", "pace", "runs"):
        assert (tmp_path / f"{plot}.svg").read_text().count("<path") > 3
        assert f"({plot}.svg)" in page
