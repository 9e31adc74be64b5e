"""What a workspace holds, as data: a listing of its paths, and the changes that lead from one listing to the next.

A path is a file (`sha256`, `bytes`, `mode`), a link (`link`: where it leads, never followed) or a folder that is empty.
"""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict, Field


class Kept(BaseModel):
    """One path as it is kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str | None = None
    bytes: int = 0
    mode: int = 0o644
    link: str | None = None


Listing = dict[str, Kept]


class Base(BaseModel):
    """A whole listing, as it is stored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    files: Listing = Field(default_factory=dict)


class Change(BaseModel):
    """What one tool call changed. Changes of one `origin` (a folder on one machine) were seen in the order of their
    `number`, in whatever order they are reported."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    origin: str
    number: int
    changed: Listing = Field(default_factory=dict)
    gone: list[str] = Field(default_factory=list)


def merge(base: Listing, changes: Iterable[Change]) -> Listing:
    """The listing after the changes. Where two touch one path the later one wins, and of one origin the one that was
    seen later."""
    found, setter = dict(base), dict[str, Change]()
    for change in changes:
        for path in [*change.gone, *change.changed]:
            held = setter.get(path)
            if held is not None and held.origin == change.origin and held.number > change.number:
                continue
            setter[path] = change
            if path in change.changed:
                found[path] = change.changed[path]
            else:
                found.pop(path, None)
    return found


def difference(before: Mapping[str, Kept], after: Mapping[str, Kept]) -> tuple[Listing, list[str]]:
    """What is new or other in `after`, and what is gone from it."""
    changed = {path: kept for path, kept in after.items() if before.get(path) != kept}
    return changed, [path for path in before if path not in after]


def is_artifact(path: str) -> bool:
    """Whether a file is shown as something that the run made: all but git's own."""
    return ".git" not in path.split("/")[:-1]


def git_head(read: Mapping[str, bytes]) -> str | None:
    """The commit that a repository in the workspace stands at; None without one. `read`: the files of `heads_of`."""
    head = read.get(".git/HEAD", b"").decode("utf-8", "replace").strip()
    if not head.startswith("ref: "):
        return head or None
    name = head.removeprefix("ref: ")
    loose = read.get(f".git/{name}")
    if loose is not None:
        return loose.decode("utf-8", "replace").strip()
    for line in read.get(".git/packed-refs", b"").decode("utf-8", "replace").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return commit
    return None


def heads_of(listing: Listing) -> list[str]:
    """The files that say where a repository stands."""
    names = (".git/HEAD", ".git/packed-refs")
    return [path for path in listing if path in names or path.startswith(".git/refs/heads/")]
