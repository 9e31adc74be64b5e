"""The parts of a deploy that need no server: build ids, patches, differences, whom to tell."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from activities.bundle_diff import difference
from workers.builds import build_id
from workers.causes import Seen
from workers.deployments import to_tell
from workers.patches import patches_in, sort_runs
from workers.replaying import Replayed
from workflows.state import WORKFLOW_VERSION


def code(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_the_build_id_is_of_the_workflow_code_and_of_nothing_else(tmp_path: Path) -> None:
    one = build_id(code(tmp_path / "one", a="x = 1", b="y = 2"))
    assert one.startswith(f"{WORKFLOW_VERSION}-")
    assert build_id(code(tmp_path / "two", a="x = 1", b="y = 2")) == one
    (tmp_path / "two" / "prompt.md").write_text("a bundle's")
    assert build_id(tmp_path / "two") == one
    assert build_id(code(tmp_path / "three", a="x = 1", b="y = 3")) != one
    assert build_id(code(tmp_path / "four", a="x = 1y = 2", b="")) != one
    assert build_id() == build_id()


def test_patches_are_found_by_name_and_by_text_with_the_runs_on_each_way(tmp_path: Path) -> None:
    top = code(
        tmp_path / "workflows",
        a='if workflow.patched("one"):\n    pass\nworkflow.patched("one")',
        b='TWO = "two"\nworkflow.deprecate_patch(TWO)',
    )
    found = patches_in(top)
    assert [(patch.id, patch.deprecated, patch.where) for patch in found] == [
        ("one", False, ["workflows/a.py:1", "workflows/a.py:3"]),
        ("two", True, ["workflows/b.py:2"]),
    ]
    sort_runs(found, [Replayed("r1", "", 9, None, {"one": False}), Replayed("r2", "", 9, None, {"one": True})])
    assert (found[0].old, found[0].new, found[0].next) == (["r1"], ["r2"], "keep both ways")
    assert (found[1].old, found[1].next) == ([], "take `deprecate_patch` out")


def test_a_run_that_does_not_replay_may_need_the_old_way_of_each_patch(tmp_path: Path) -> None:
    found = patches_in(code(tmp_path / "workflows", a='workflow.patched("one")', b='workflow.deprecate_patch("two")'))
    sort_runs(found, [Replayed("r1", "", 9, "another command", {"one": True}), Replayed("r2", "", 9, None, {})])
    assert [patch.unknown for patch in found] == [["r1"], ["r1"]]
    assert {patch.next for patch in found} == {"leave it as it is: 1 open runs do not replay, and may need the old way"}


def test_the_difference_names_both_sides_and_only_what_differs() -> None:
    old, new = {"prompt.md": "a\nb\n", "bundle.toml": "x"}, {"prompt.md": "a\nc\n", "bundle.toml": "x"}
    assert difference(old, new, ("used", "now")).splitlines()[:2] == ["--- used/prompt.md", "+++ now/prompt.md"]
    assert difference(old, old, ("used", "now")) == ""


@pytest.mark.parametrize(
    ("build", "status", "told"),
    [
        ("b1", "waiting", True),
        ("b1", "parked", True),
        ("b1", "", True),
        ("b1", "running", False),
        ("b2", "waiting", False),
        ("", "waiting", False),
        ("b0", "waiting", False),
    ],
)
def test_idle_runs_of_other_builds_that_are_served_are_told(build: str, status: str, told: bool) -> None:
    seen = Seen("run", "r", "perdure", datetime.now(UTC), status=status, build=build)
    assert to_tell(seen, "b2", {"b1", "b2"}) is told
