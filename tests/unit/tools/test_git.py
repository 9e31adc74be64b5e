"""The repository of the workspace: commits that are found again, and no way out of the workspace."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from activities.tools import Operation, Tool, ToolError
from activities.tools.git import (
    find_commit,
    find_restored,
    git_commit,
    git_diff,
    git_log,
    git_restore,
    git_status,
    take_back,
)
from tests.isolation import isolation

pytestmark = isolation


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "spaces" / "run"
    place.mkdir(parents=True)
    (place / "a.txt").write_text("one\n")
    return place


def operation(workspace: Path, number: int, **arguments: Any) -> Operation:
    return Operation(
        operation_id=f"run.1:git:{number}", tool="git", thread="run.1", workspace=workspace, arguments=arguments
    )


def call(tool: Tool, workspace: Path, number: int = 99, /, **arguments: Any) -> Any:
    return tool(**tool.canonical(arguments), op=operation(workspace, number, **arguments))


def git(workspace: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=workspace, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_commit_says_at_its_end_what_it_belongs_to(workspace: Path) -> None:
    op = replace(operation(workspace, 1), trailers={"Task": "parse-dates"})
    git_commit(message="First\n\nTask: another", op=op)
    assert git(workspace, "log", "--format=%(trailers:key=Task,valueonly)") == "parse-dates"
    assert find_commit(operation(workspace, 1)) is not None


def test_a_commit_is_found_by_its_operation_and_by_no_other(workspace: Path) -> None:
    assert find_commit(operation(workspace, 1)) is None
    made = call(git_commit, workspace, 1, message="First\n\nWhy.\n\nSigned-off-by: alice")
    assert made.id == git(workspace, "rev-parse", "HEAD")
    assert find_commit(operation(workspace, 1)) == made
    assert find_commit(operation(workspace, 11)) is None
    (workspace / "a.txt").write_text("two\n")
    second = call(git_commit, workspace, 11, message="Second")
    assert find_commit(operation(workspace, 11)) == second
    assert find_commit(operation(workspace, 1)) == made
    assert git(workspace, "log", "--format=%(trailers:key=Operation-Id,valueonly)").split() == [
        "run.1:git:11",
        "run.1:git:1",
    ]


@pytest.mark.parametrize("message", ["", "  \n", "x\n\nOperation-Id: run.1:git:2", "operation-id: other"])
def test_a_message_that_is_empty_or_forges_an_operation_is_refused(workspace: Path, message: str) -> None:
    with pytest.raises(ToolError):
        call(git_commit, workspace, 1, message=message)
    assert not (workspace / ".git").exists()


def test_nothing_to_commit_is_said_and_half_written_files_are_left_out(workspace: Path) -> None:
    (workspace / ".perdure-0123.tmp").write_text("half")
    call(git_commit, workspace, 1, message="First")
    assert git(workspace, "ls-files") == "a.txt"
    with pytest.raises(ToolError, match="nothing to commit"):
        call(git_commit, workspace, 2, message="Again")


def test_locks_of_a_git_that_was_killed_do_not_stop_the_next_one(workspace: Path) -> None:
    call(git_commit, workspace, 1, message="First")
    for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock"):
        (workspace / ".git" / name).touch()
    (workspace / "a.txt").write_text("two\n")
    call(git_commit, workspace, 2, message="Second")
    assert git(workspace, "log", "--format=%s").split() == ["Second", "First"]


def test_a_folder_that_is_no_repository_yet_becomes_one(workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    assert find_commit(operation(workspace, 1)) is None
    assert call(git_commit, workspace, 1, message="First").subject == "First"


def test_a_repository_around_the_workspace_is_not_touched(workspace: Path) -> None:
    git(workspace.parent, "init", "--quiet")
    with pytest.raises(ToolError, match="not a git repository"):
        call(git_status, workspace)
    call(git_commit, workspace, 1, message="First")
    assert git(workspace.parent, "log", "--all") == ""


def test_what_a_hook_or_a_filter_does_stays_in_the_workspace(workspace: Path, tmp_path: Path) -> None:
    call(git_commit, workspace, 1, message="First")
    outside = tmp_path / "outside"
    hook = workspace / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {outside} inside\nexit 0\n")
    hook.chmod(0o755)
    (workspace / ".gitattributes").write_text("* filter=evil\n")
    git(workspace, "config", "filter.evil.clean", f"sh -c 'touch {outside} filtered; cat'")
    git(workspace, "config", "core.fsmonitor", f"sh -c 'touch {outside} watched'")
    (workspace / "a.txt").write_text("two\n")
    call(git_status, workspace)
    call(git_diff, workspace)
    assert not (workspace / "watched").exists(), "what only reads cannot write"
    call(git_commit, workspace, 2, message="Second")
    assert (workspace / "inside").exists(), "the hook ran"
    assert (workspace / "filtered").exists(), "the filter ran"
    assert not outside.exists()


def test_restoring_is_looked_up_and_stays_inside(workspace: Path) -> None:
    (workspace / "-f").write_text("option\n")
    call(git_commit, workspace, 1, message="First")
    (workspace / "a.txt").write_text("two\n")
    (workspace / "-f").unlink()
    assert find_restored(operation(workspace, 2, path="a.txt")) is None
    call(git_restore, workspace, 2, path="a.txt")
    call(git_restore, workspace, 3, path="-f")
    assert find_restored(operation(workspace, 2, path="a.txt")) is not None
    assert ((workspace / "a.txt").read_text(), (workspace / "-f").read_text()) == ("one\n", "option\n")
    for path in ("../x", "/etc/passwd", "nothing.txt"):
        with pytest.raises(ToolError):
            call(git_restore, workspace, 4, path=path)


def test_the_last_commit_can_be_taken_back_and_an_earlier_one_not(workspace: Path) -> None:
    first = call(git_commit, workspace, 1, message="First")
    (workspace / "a.txt").write_text("two\n")
    second = call(git_commit, workspace, 2, message="Second")
    with pytest.raises(ToolError, match="other commits stand on"):
        take_back(operation(workspace, 1), first)
    take_back(operation(workspace, 2), second)
    assert find_commit(operation(workspace, 2)) is None
    assert (workspace / "a.txt").read_text() == "two\n"
    take_back(operation(workspace, 1), first)
    assert call(git_log, workspace) == "[no commit yet]"


def test_reading_shows_what_differs_and_takes_no_option_for_a_commit(workspace: Path) -> None:
    assert call(git_commit, workspace, 1, message="First").subject == "First"
    (workspace / "a.txt").write_text("two\n")
    (workspace / "ü.txt").write_text("new\n")
    assert " M a.txt\n?? ü.txt" in call(git_status, workspace)
    assert "-one\n+two" in call(git_diff, workspace)
    assert call(git_diff, workspace, path="ü.txt") == "[the same]"
    assert "First" in call(git_log, workspace)
    for commit in ("--output=/workspace/x", "a b", ""):
        with pytest.raises(ToolError, match="is no commit"):
            call(git_diff, workspace, commit=commit)
