"""What a coder may leave of a repository: each way is rejected by the check of its session, or makes no difference."""

import subprocess
from pathlib import Path

import pytest

from activities.project_checks import checked
from activities.project_repository import _keep, clone, deliver
from activities.tools.operation import Operation
from activities.tools.sandbox import Place
from tests.isolation import isolation
from tests.unit.test_project_activities import committed, git
from workflows.project_records import Checked, CheckRequest, KeepRequest
from workflows.records import Workspace
from workflows.tasks import Task

THREAD = "p.1"
TASKS = [Task(id="a", title="A", acceptance=["x"], checks=[["true"]])]
WORK = "echo more >> a.txt; git add -A; git commit -qm work"
ANEW = "git checkout -q --orphan n; git add -A; git commit -qm anew; N=$(git rev-parse HEAD)"
HOOK = WORK + "; mkdir -p .git/hooks; printf '#!/bin/sh\\n{0}\\n' > .git/hooks/{1}; chmod +x .git/hooks/{1}"


def bend(folder: Path, script: str) -> None:
    """Runs a script as a coder could, in the workspace."""
    name = {f"GIT_{who}_{what}": "c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **name}
    done = subprocess.run(["bash", "-ec", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def verdict(folder: Path, since: str) -> Checked:
    request = CheckRequest(
        thread=THREAD,
        workspace=Workspace(thread=THREAD),
        tasks=TASKS,
        bundle="",
        seconds=20,
        finished=True,
        since=since,
    )
    op = Operation(operation_id="p.1:check:0", tool="check", thread=THREAD, workspace=folder)
    return checked(op, request, Place())


def keep(folder: Path, number: int, status: str = "open") -> str:
    request = KeepRequest(
        thread=THREAD,
        workspace=Workspace(thread=THREAD),
        number=number,
        tasks=[TASKS[0].model_copy(update={"status": status})],
        everything=number == 1,
    )
    op = Operation(operation_id=f"p.1:tasks.json:{number}", tool="tasks.json", thread=THREAD, workspace=folder)
    commit = _keep(op, request)
    assert commit is not None
    return commit


@isolation
@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(f"{ANEW}; git replace --graft $N SINCE", "history was rewritten", id="replacement"),
        pytest.param(
            f"{ANEW}; mkdir -p .git/info; echo $N SINCE > .git/info/grafts",
            "rewritten",
            id="graft",
            marks=pytest.mark.all,
        ),
        pytest.param(
            f"{WORK}; echo {'12' * 20} > .git/refs/heads/main", "rewritten", id="no-such-commit", marks=pytest.mark.all
        ),
        pytest.param(
            f"{WORK}; rm .git/objects/$(git rev-parse HEAD:a.txt | sed s,..,\\&/,)",
            "missing",
            id="no-blob",
            marks=pytest.mark.all,
        ),
        pytest.param(f"{WORK}; mv .git gd; ln -s gd .git", ".git is not a plain folder", id="link"),
        pytest.param(
            f"{WORK}; mv .git gd; echo gitdir: /workspace/gd > .git",
            ".git is not a plain folder",
            id="file",
            marks=pytest.mark.all,
        ),
        pytest.param(
            "git rm -q tasks.json; mkdir tasks.json; echo x > tasks.json/x; " + WORK,
            "tasks.json is",
            id="list",
            marks=pytest.mark.all,
        ),
        pytest.param(
            f"{WORK}; echo '[[[' >> .git/config", "history was rewritten", id="configuration", marks=pytest.mark.all
        ),
        pytest.param(f"{WORK}; git config core.bare true", "cannot be used", id="bare", marks=pytest.mark.all),
    ],
)
def test_a_bent_repository_is_rejected(tmp_path: Path, script: str, said: str) -> None:
    work = committed(tmp_path / "w")
    since = keep(work, 1)
    bend(work, script.replace("SINCE", since))
    assert said in verdict(work, since).unfit


@isolation
@pytest.mark.parametrize(
    ("script", "path"),
    [
        pytest.param("git config status.showUntrackedFiles no; echo z > loose.txt", "loose.txt", id="untracked"),
        pytest.param(
            "git update-index --assume-unchanged a.txt; echo z > a.txt",
            "a.txt",
            id="taken-for-unchanged",
            marks=pytest.mark.all,
        ),
        pytest.param(
            "git update-index --skip-worktree a.txt; echo z > a.txt", "a.txt", id="skipped", marks=pytest.mark.all
        ),
    ],
)
def test_nothing_is_hidden_from_the_question_what_is_not_committed(tmp_path: Path, script: str, path: str) -> None:
    work = committed(tmp_path / "w")
    since = keep(work, 1)
    bend(work, f"{WORK}; {script}")
    found = verdict(work, since)
    assert found.unfit == ""
    assert path in found.broken["a"]


@isolation
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            HOOK.format("git checkout -q --orphan zz; git commit -qm anew", "post-commit"), id="hook-rewrites"
        ),
        pytest.param(HOOK.format("exit 1", "reference-transaction"), id="hook-fails", marks=pytest.mark.all),
        pytest.param(f"{WORK}; echo garbage > .git/index", id="index", marks=pytest.mark.all),
        pytest.param(f"{WORK}; git config core.fsmonitor 'sleep 100; true'", id="monitor", marks=pytest.mark.all),
        pytest.param(f"{WORK}; git sparse-checkout set --no-cone /nothing /a.txt", id="sparse", marks=pytest.mark.all),
        pytest.param(f"{WORK}; git update-index --skip-worktree tasks.json", id="skipped-list", marks=pytest.mark.all),
        pytest.param(f"{WORK} -m 'Operation-Id: p.1:tasks.json:2'", id="forged-trailer"),
        pytest.param(
            f"echo 'tasks.json filter=x' > .git/info/attributes; {WORK}; git config filter.x.clean false",
            id="filter",
            marks=pytest.mark.all,
        ),
    ],
)
def test_what_only_the_repositorys_own_settings_say_makes_no_difference(tmp_path: Path, script: str) -> None:
    work = committed(tmp_path / "w")
    (work / ".git" / "info").mkdir(exist_ok=True)
    since = keep(work, 1)
    bend(work, script)
    found = verdict(work, since)
    assert (found.unfit, found.broken) == ("", {})
    assert keep(work, 2, "passing") == keep(work, 2, "passing"), "the same again commits nothing"
    deliver(Operation(operation_id="p.1:d:0", tool="d", thread=THREAD, workspace=work), committed(tmp_path / "u"), "to")
    user = tmp_path / "u"
    git(user, "merge-base", "--is-ancestor", since, "to")
    assert '"status": "passing"' in git(user, "show", "to:tasks.json")
    assert "more" in git(user, "show", "to:a.txt")


def test_a_repository_that_borrows_its_objects_is_taken_whole(tmp_path: Path) -> None:
    lender = committed(tmp_path / "lender")
    git(tmp_path, "clone", "--quiet", "--shared", str(lender), "borrower")
    clone(tmp_path / "borrower", tmp_path / "w")
    assert not (tmp_path / "w" / ".git" / "objects" / "info" / "alternates").exists()
    git(tmp_path / "w", "fsck", "--connectivity-only")
