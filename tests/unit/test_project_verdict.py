"""The verdict on the demo's project: it finds what is wrong in a repository."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts.demo.project_verdict import verdict

TEST = "def test_it() -> None:\n    assert True\n"
RESULT: dict[str, Any] = {
    "tasks": [{"status": "passing"}],
    "branch": "main",
    "log": [{"what": "flipped", "reason": "count-words: 1 failed"}],
}
NOTES: list[dict[str, Any]] = [
    {"role": "initializer", "task": None, "passing": True},
    *[{"role": "coder", "task": task, "passing": True} for task in ("slugify", "slugify")],
    {"role": "evaluator", "task": "slugify", "passing": False},
    *[{"role": "evaluator", "task": "slugify", "passing": True}] * 2,
]
STATS: dict[str, Any] = {"requests": {"plan": {"0": 2}}, "refused": []}
KILLED = ["worker", "server", "worker", "server", "worker"]
GOOD = [("Lay the ground", "a:1"), ("tasks.json: 0 of 1 pass", "p:1"), ("slugify: a", "b:1"), ("slugify: b", "c:1")]


def repository(folder: Path, commits: list[tuple[str, str]], test: str = TEST) -> Path:
    """A repository with these subjects and operations."""
    folder.mkdir()

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)

    git("init", "--initial-branch=main")
    (folder / "test_it.py").write_text(test)
    git("add", "--all")
    for subject, operation in commits:
        task = "Task: slugify\n" if subject.startswith("slugify") else ""
        git("commit", "--allow-empty", "--message", f"{subject}\n\n{task}Operation-Id: {operation}")
    return folder


def test_a_project_that_came_out_well(tmp_path: Path) -> None:
    assert verdict(RESULT, NOTES, repository(tmp_path / "r", GOOD), STATS, KILLED).wrong == []


@pytest.mark.all
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"commits": [*GOOD, GOOD[-1]]}, "one commit of each task"),
        ({"commits": [*GOOD[:-1], ("slugify: b", "b:1")]}, "none twice"),
        ({"test": TEST.replace("True", "False")}, "pytest in a fresh clone"),
        ({"result": {**RESULT, "tasks": [{"status": "open"}]}}, "tasks pass"),
        ({"result": {**RESULT, "log": []}}, "caught by its checks"),
        ({"killed": KILLED[1:]}, "kills"),
        ({"stats": {**STATS, "requests": {"plan": {"0": 9}}}}, "again after a kill"),
        ({"stats": {**STATS, "refused": [{"message": "spent"}]}}, "out of its script"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    made = repository(tmp_path / "r", change.get("commits", GOOD), change.get("test", TEST))
    found = verdict(change.get("result", RESULT), NOTES, made, change.get("stats", STATS), change.get("killed", KILLED))
    assert [each for each in found.wrong if said in each], found
