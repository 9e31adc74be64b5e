"""What a project does itself: reading a plan, running checks in a copy, taking a grade, and the user's repository."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities import project_sessions
from activities.errors import NotIsolated, RepositoryUnavailable
from activities.project_checks import checked, planned
from activities.project_input import local_path
from activities.project_repository import branch_for, clone, deliver, whole
from activities.project_repository import operation as own_operation
from activities.project_sessions import _wanted, grade_of
from activities.tools import sandbox
from activities.tools.operation import Operation
from activities.tools.sandbox import Place
from activities.workspaces import Snapshot
from tests.isolation import isolation
from workflows.project_records import CheckRequest, SessionRequest
from workflows.records import BundleRef, Ref, Workspace
from workflows.tasks import Task

TASK: dict[str, Any] = {"id": "a", "title": "A", "acceptance": ["it is"], "checks": [["true"]]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "A b"}, "tasks.0.id"),
        ({"acceptance": []}, "tasks.0.acceptance"),
        ({"checks": [[]]}, "tasks.0.checks.0"),
        ({"checks": ["pytest -q"]}, "tasks.0.checks.0"),
        ({"title": ""}, "tasks.0.title"),
    ],
)
def test_a_plan_is_held_to_its_schema(change: dict[str, Any], said: str) -> None:
    assert planned(json.dumps({"tasks": [TASK]}))[0].status == "open"
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        planned(json.dumps({"tasks": [{**TASK, **change}]}))


def test_a_status_that_the_initializer_gives_counts_for_nothing() -> None:
    [task] = planned(json.dumps({"tasks": [{**TASK, "status": "passing"}]}))
    assert task.status == "open"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def committed(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    (folder / "a.txt").write_text("a")
    git(folder, "add", "--all")
    git(folder, "commit", "--message", "a")
    return folder


def operation(folder: Path) -> Operation:
    return Operation(operation_id="p.1:check:0", tool="check", thread="p.1", workspace=folder)


def outcome(folder: Path, *argv: str, finished: bool = False, seconds: float = 20) -> str | None:
    """Why a task with this check does not pass."""
    task = Task(id="a", title="A", acceptance=["x"], checks=[["true"], list(argv)])
    request = CheckRequest(
        thread="p.1",
        workspace=Workspace(thread="p.1"),
        tasks=[task],
        bundle="",
        seconds=seconds,
        finished=finished,
    )
    return checked(operation(folder), request, Place()).broken.get("a")


def test_without_isolation_a_project_runs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sandbox, "problem", lambda: "a test says so")
    with pytest.raises(NotIsolated, match="a test says so"):
        own_operation("p.1", "check", tmp_path)


@isolation
def test_checks_say_why_a_task_does_not_pass(tmp_path: Path) -> None:
    folder = committed(tmp_path / "w")
    assert outcome(folder, "true", finished=True) is None
    assert "exit code 3: …no" in str(outcome(folder, "sh", "-c", "echo no; exit 3"))
    assert "was killed after 0.2 s" in str(outcome(folder, "sleep", "9", seconds=0.2))
    assert "no program 'nothing-like-it'" in str(outcome(folder, "nothing-like-it"))
    (folder / "tasks.json").write_text("whatever a session writes here")
    assert outcome(folder, "true", finished=True) is None
    (folder / "b.txt").write_text("b")
    assert "b.txt" in str(outcome(folder, "true", finished=True))
    assert outcome(folder, "true") is None
    (tmp_path / "bare").mkdir()
    assert outcome(tmp_path / "bare", "true", finished=True) == "nothing is committed"


@isolation
def test_commits_go_to_a_branch_of_their_own_and_to_none_that_is_checked_out(tmp_path: Path) -> None:
    mine, work = committed(tmp_path / "mine"), tmp_path / "work"
    (mine / ".git" / "hooks").mkdir(exist_ok=True)
    hook = mine / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    work.mkdir()
    clone(mine, work)
    assert git(work, "remote") == ""
    (work / "b.txt").write_text("b")
    git(work, "add", "--all")
    git(work, "commit", "--message", "b")
    deliver(operation(work), mine, "perdure/p")
    assert git(mine, "rev-parse", "perdure/p") == git(work, "rev-parse", "HEAD")
    assert git(mine, "status", "--porcelain") == ""
    assert not list((work / ".git").glob("perdure*"))
    assert not (mine / ".git" / "FETCH_HEAD").exists()
    with pytest.raises(RepositoryUnavailable, match="main"):
        deliver(operation(work), mine, "main")
    with pytest.raises(RepositoryUnavailable, match="there is no folder"):
        deliver(operation(work), tmp_path / "gone", "perdure/p")
    assert not (tmp_path / "ran").exists()


def test_the_branch_of_an_earlier_project_of_that_name_is_left_alone(tmp_path: Path) -> None:
    mine = committed(tmp_path / "mine")
    assert branch_for(mine, "dates", "dates.1234") == "perdure/dates"
    git(mine, "branch", "perdure/dates")
    assert branch_for(mine, "dates", "dates.1234") == "perdure/dates-1234"
    git(
        mine, "commit", "--allow-empty", "--message", "tasks.json: 0 of 1 pass\n\nOperation-Id: dates.1234:tasks.json:1"
    )
    git(mine, "branch", "--force", "perdure/dates")
    assert branch_for(mine, "dates", "dates.1234") == "perdure/dates"
    assert branch_for(mine, "dates", "dates.5678") == "perdure/dates-5678"


@isolation
@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ([("commit", "--allow-empty", "--message", "plain")], ""),
        ([("commit", "--amend", "--message", "amended")], "history was rewritten"),
        ([("checkout", "--quiet", "--orphan", "new"), ("commit", "--message", "x")], "history was rewritten"),
        (
            [
                ("checkout", "--quiet", "-b", "side"),
                ("commit", "--allow-empty", "--message", "side"),
                ("checkout", "--quiet", "main"),
                ("merge", "--quiet", "--no-ff", "side", "--message", "merge"),
            ],
            "a merge was committed",
        ),
    ],
)
def test_a_session_only_adds_plain_commits(tmp_path: Path, commands: list[tuple[str, ...]], said: str) -> None:
    folder = committed(tmp_path / "w")
    since = git(folder, "rev-parse", "HEAD")
    for command in commands:
        git(folder, *command)
    request = CheckRequest(
        thread="p.1", workspace=Workspace(thread="p.1"), tasks=[], bundle="", seconds=20, finished=True, since=since
    )
    unfit = checked(operation(folder), request, Place()).unfit
    assert unfit.startswith(said)
    assert bool(unfit) == bool(said)


@isolation
def test_a_session_that_takes_the_repository_away_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    request = CheckRequest(
        thread="p.1", workspace=Workspace(thread="p.1"), tasks=[], bundle="", seconds=20, finished=True, since="a" * 40
    )
    assert "history was rewritten" in checked(operation(tmp_path / "w"), request, Place()).unfit


def test_a_repository_whose_pack_is_too_large_to_be_kept_is_refused() -> None:
    whole(Snapshot(too_large=["data.bin"]))
    with pytest.raises(RepositoryUnavailable, match="max-pack-size"):
        whole(Snapshot(too_large=[".git/objects/pack/pack-1.pack"]))


def test_a_session_is_the_same_one_in_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    request = SessionRequest(
        thread="p.1",
        branch="a",
        number=2,
        role="coder",
        bundle=BundleRef(name="coder", version="1", digest="d"),
        workspace=Workspace(thread="p.1"),
        run="r",
        brief=Ref(sha256="b", bytes=1),
        task=Task(id="a", title="A", acceptance=["x"], checks=[["true"]]),
    )

    def asked(request: SessionRequest) -> str | None:
        return ActivityEnvironment().run(_wanted, request, "brief", "name").asked

    before = asked(request)
    monkeypatch.setattr(project_sessions, "goal_of", lambda *_: "the words of another release")
    assert asked(request) == before
    assert asked(request.model_copy(update={"branch": "b"})) == before
    assert asked(request.model_copy(update={"handoff": "another one"})) != before


@pytest.mark.parametrize(
    ("given", "meant"), [("/a/b", "/a/b"), ("file:///a%20b", "/a b"), ("file://localhost/a", "/a")]
)
def test_a_repository_is_a_local_path(given: str, meant: str) -> None:
    assert local_path(given) == Path(meant)


def test_a_pass_with_a_criterion_that_is_not_met_is_none() -> None:
    met = {"criterion": "x", "met": True, "evidence": "ran it"}
    unmet = {"criterion": "y", "met": False, "evidence": "it failed"}
    assert grade_of({"passing": True, "criteria": [met], "reasons": []}) is not None
    found = grade_of({"passing": True, "criteria": [met, unmet], "reasons": []})
    assert found is not None
    assert (found.passing, found.reasons) == (False, ["not met: y (it failed)"])
    assert grade_of(None) is None
    assert grade_of("passes, I promise") is None
