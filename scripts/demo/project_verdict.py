"""Whether a project that was killed five times came out as it has to: looked up in the repository, not in its word."""

import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRAILERS = "%x1f".join(f"%(trailers:key={name},valueonly,separator=%x2c)" for name in ("Operation-Id", "Task"))
OWN = "tasks.json:"
"""How the subjects begin of what the project commits itself."""


@dataclass
class Verdict:
    """What holds, and what does not."""

    facts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def hold(self, holds: bool, fact: str, otherwise: str = "") -> None:
        """Books one thing that has to hold."""
        (self.facts if holds else self.wrong).append(fact if holds else f"NOT: {fact} {otherwise}".rstrip())


def verdict(
    result: dict[str, Any], notes: list[dict[str, Any]], repository: Path, stats: dict[str, Any], killed: list[str]
) -> Verdict:
    """All that has to hold at the end."""
    found = Verdict()
    tasks = result["tasks"]
    found.hold(all(task["status"] == "passing" for task in tasks), f"all {len(tasks)} tasks pass")
    found.hold(len(killed) == 5, f"{len(killed)} kills: {', '.join(killed)}")
    coders = [note for note in notes if note["role"] == "coder"]
    found.hold(len(notes) >= 6, f"{len(notes)} sessions, {len(coders)} of coders")
    rejected = [note["task"] for note in notes if note["role"] == "evaluator" and note["passing"] is False]
    found.hold(rejected == ["slugify"], f"rejected by the evaluator and mended: {', '.join(rejected)}")
    flipped = [entry["reason"].partition(":")[0] for entry in result["log"] if entry["what"] == "flipped"]
    found.hold(flipped == ["count-words"], f"broken by another task, caught by its checks: {', '.join(flipped)}")
    _commits(found, repository, result["branch"], coders)
    _tests(found, repository, result["branch"])
    _requests(found, stats, len(killed))
    return found


def _commits(found: Verdict, repository: Path, branch: str, coders: list[dict[str, Any]]) -> None:
    """One commit of each task, and one more each time it was to be done again; none twice, in a line."""
    lines = _git(repository, "log", "--reverse", f"--format=%s%x1f{TRAILERS}", branch).splitlines()
    made = [line.split("\x1f") for line in lines]
    work = [task for subject, _, task in made if not subject.startswith(OWN)][1:]
    wanted = [note["task"] for note in coders]
    again = sorted(task for task, n in Counter(wanted).items() if n > 1)
    fact = f"one commit of each task ({', '.join(dict.fromkeys(wanted))}), a second one of {', '.join(again)}"
    found.hold(work == wanted, fact, f"but {', '.join(work)}")
    operations = [operation for _, operation, _ in made]
    found.hold(all(operations) and len(set(operations)) == len(made), f"{len(made)} commits, none twice")
    merges = _git(repository, "rev-list", "--min-parents=2", branch).split()
    roots = _git(repository, "rev-list", "--max-parents=0", branch).split()
    found.hold(not merges and len(roots) == 1, "the history is one line")


def _tests(found: Verdict, repository: Path, branch: str) -> None:
    """A fresh clone of what was delivered, and all its tests."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", "--branch", branch, str(repository), folder], check=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    found.hold(done.returncode == 0, f"pytest in a fresh clone: {last}")


def _requests(found: Verdict, stats: dict[str, Any], killed: int) -> None:
    """A turn is asked for again only where a kill cut it off."""
    counts = Counter({f"{name} {index}": n for name, each in stats["requests"].items() for index, n in each.items()})
    twice = {"grade-count-words"}  # graded again after it was mended
    again = sum(n - (2 if name.split()[0] in twice else 1) for name, n in counts.items())
    found.hold(0 <= again <= killed, f"{counts.total()} requests to the model, {again} of them again after a kill")
    found.hold(not stats["refused"], "no request was out of its script", str(stats["refused"][:2]))


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True).stdout
