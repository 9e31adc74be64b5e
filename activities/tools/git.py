"""The git repository of the workspace.

What git runs (hooks, filters) is named by files that the agent can write, so git is run like any command: isolated, or
asked about. A commit carries the trailer `Operation-Id`, by which its look-up finds it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from activities.tools.commands import Ran, run
from activities.tools.confined import parts_of
from activities.tools.declaration import tool
from activities.tools.errors import ToolError, ToolTimeout
from activities.tools.operation import Operation
from activities.tools.sandbox import ask_without_isolation

SECONDS = 30.0
"""For one git command; a tool makes a few, and they are quick."""
TIMEOUT = 60.0
TRAILER = "Operation-Id"
_HALF_WRITTEN = ":(exclude,glob)**/.perdure-*"


class Commit(BaseModel):
    """A commit, by its hash."""

    id: str
    subject: str


@tool(effect="read", timeout=TIMEOUT, guard=ask_without_isolation)
def git_status(*, op: Operation) -> str:
    """Show the branch and which files of the workspace differ from its last commit."""
    return _read(op, "status", "--short", "--branch") or "[nothing to commit]"


@tool(effect="read", timeout=TIMEOUT, guard=ask_without_isolation)
def git_diff(commit: str = "HEAD", path: str = ".", *, op: Operation) -> str:
    """Show how the files that git knows differ from a commit.

    Args:
        commit: the commit to compare with, or two as a..b
        path: the file or folder, relative to the workspace
    """
    return _read(op, "diff", "--no-ext-diff", "--no-textconv", _revision(commit), "--", _pathspec(path)) or "[the same]"


@tool(effect="read", timeout=TIMEOUT, guard=ask_without_isolation)
def git_log(count: Annotated[int, Field(ge=1, le=200)] = 20, path: str = ".", *, op: Operation) -> str:
    """Show the last commits, the newest first.

    Args:
        count: how many at most
        path: only those that touch this file or folder
    """
    if run_git(op, "rev-parse", "--verify", "--quiet", "HEAD", check=False).code != 0:
        return "[no commit yet]"
    form = "--format=%h %ad %an%n%w(0,4,4)%B"
    return _read(op, "log", f"--max-count={count}", "--date=iso-strict", form, "--", _pathspec(path))


@tool(effect="once", timeout=TIMEOUT, writes=True, guard=ask_without_isolation)
def git_commit(message: str, *, op: Operation) -> Commit:
    """Commit all files of the workspace as they are. Makes the repository if there is none.

    Args:
        message: what changed and why; the first line is a summary
    """
    if not message.strip():
        raise ToolError("the message is empty")
    if f"{TRAILER}:".casefold() in message.casefold():
        raise ToolError(f"the message holds {TRAILER}:, which is written by this tool")
    unlock(op)
    if not is_repository(op):
        run_git(op, "init", "--quiet", "--initial-branch=main", write=True)
    run_git(op, "add", "--all", "--", ".", _HALF_WRITTEN, write=True)
    if run_git(op, "diff", "--cached", "--quiet", check=False).code == 0:
        raise ToolError("there is nothing to commit: no file differs from the last commit")
    trailers = {**op.trailers, TRAILER: op.operation_id}
    text = "\n".join([message.strip(), "", *(f"{name}: {value}" for name, value in trailers.items())])
    flags = ("--quiet", "--cleanup=whitespace", "--no-gpg-sign")
    ran = run_git(op, "commit", *flags, f"--message={text}", write=True, check=False)
    made = find_commit(op)
    if made is None:
        raise ToolError(f"git did not commit: {_why(ran)}")
    return made


@git_commit.lookup
def find_commit(op: Operation) -> Commit | None:
    """The commit that this operation made."""
    if not is_repository(op):
        return None
    wanted = f"{TRAILER}: {op.operation_id}"
    form = f"--format=%H%x1f%s%x1f%(trailers:key={TRAILER},valueonly,separator=%x1f)"
    found = _read(op, "log", "--all", "--fixed-strings", f"--grep={wanted}", form)
    for line in found.splitlines():
        commit, *rest = line.split("\x1f")
        if not rest:
            continue  # a warning of git's
        subject, *operations = rest
        if op.operation_id in operations:
            return Commit(id=commit, subject=subject)
    return None


@git_commit.compensate
def take_back(op: Operation, result: Commit) -> None:
    """Takes the last commit off; the files stay as they are. Raises `ToolError` when others stand on it."""
    if _read(op, "rev-parse", "HEAD").strip() != result.id:
        raise ToolError(f"other commits stand on {result.id[:12]}; revert it by another commit")
    unlock(op)
    parent = run_git(op, "rev-parse", "--verify", "--quiet", "HEAD^", check=False)
    target = ("reset", "--quiet", "--soft", "HEAD^") if parent.code == 0 else ("update-ref", "-d", "HEAD")
    run_git(op, *target, write=True)


@tool(effect="once", timeout=TIMEOUT, writes=True, guard=ask_without_isolation)
def git_restore(path: str, *, op: Operation) -> str:
    """Put a file or folder back to what the last commit holds. What is not committed there is lost.

    Args:
        path: the file or folder, relative to the workspace
    """
    unlock(op)
    run_git(op, "restore", "--source=HEAD", "--staged", "--worktree", "--", _pathspec(path), write=True)
    return f"{path} is as in the last commit"


@git_restore.lookup
def find_restored(op: Operation) -> str | None:
    """Whether the path is as in the last commit; nothing is lost by restoring it again."""
    path = str(op.arguments["path"])
    ran = run_git(op, "diff", "--quiet", "HEAD", "--", _pathspec(path), check=False)
    if ran.code not in (0, 1):
        raise ToolError(f"git cannot tell: {ran.said[:500]}")
    return f"{path} is as in the last commit" if ran.code == 0 else None


def _read(op: Operation, *arguments: str) -> str:
    return run_git(op, *arguments).said


_PLAIN = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false"),
    *("core.sparseCheckout=false", "status.showUntrackedFiles=all", "advice.graftFileDeprecated=false"),
)
_AS_IT_IS = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null"}


def run_git(op: Operation, *arguments: str, write: bool = False, check: bool = True, plain: bool = False) -> Ran:
    """Runs git. Raises `ToolError` with what it said when it fails, unless the caller judges that (`check=False`), and
    `ToolTimeout`. `plain`: without what the repository itself says that git should run, hide or take for history."""
    settings = ("core.quotepath=off", "safe.directory=*", *(_PLAIN if plain else ()))
    argv = ["git", "--no-pager", *(part for each in settings for part in ("-c", each)), *arguments]
    variables = {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        **(_AS_IT_IS if plain else {}),
        # Never a repository that the workspace happens to lie in.
        "GIT_CEILING_DIRECTORIES": str(op.workspace.resolve().parent),
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()},
    }
    ran = run(op, argv, SECONDS, writable=write, more=variables)
    if ran.code is None:
        raise ToolTimeout(SECONDS)
    if check and ran.code != 0:
        raise ToolError(f"git {arguments[0]} failed: {_why(ran)}")
    return ran


def _why(ran: Ran) -> str:
    return ran.said.strip()[:2000] or f"exit code {ran.code}"


_WHO = {"NAME": "Perdure agent", "EMAIL": "agent@perdure.invalid"}


def is_repository(op: Operation) -> bool:
    return run_git(op, "rev-parse", "--git-dir", check=False).code == 0


def unlock(op: Operation) -> None:
    """Removes the locks that a killed git left: calls that write to a workspace come one at a time."""
    if (op.workspace / ".git").exists():
        run(op, ["find", ".git", "-name", "*.lock", "-delete"], SECONDS)


def _pathspec(path: str) -> str:
    return f":(literal){'/'.join(parts_of(path)) or '.'}"


def _revision(text: str) -> str:
    if not text or text.startswith("-") or any(sign.isspace() for sign in text):
        raise ToolError(f"{text[:100]!r} is no commit")
    return text
