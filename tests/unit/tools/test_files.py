from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from activities.tools import Operation, Tool, ToolError
from activities.tools.files import (
    OUTPUT_LIMIT,
    edit_file,
    list_files,
    read_file,
    restore_file,
    search_files,
    write_file,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("outside")
    place = tmp_path / "spaces" / "run"
    place.mkdir(parents=True)
    return place


def operation(workspace: Path, number: int = 1, **arguments: Any) -> Operation:
    return Operation(
        operation_id=f"run.1:t:{number}", tool="t", thread="run.1", workspace=workspace, arguments=arguments
    )


def call(tool: Tool, workspace: Path, number: int = 1, /, **arguments: Any) -> Any:
    return tool(**arguments, op=operation(workspace, number, **arguments))


OUTSIDE = [
    "../secret.txt",
    "a/../../secret.txt",
    "/etc/passwd",
    "link.txt",
    "dirlink/secret.txt",
    "a/inner/secret.txt",
    "nul\0.txt",
    "x" * 256,
    "ü" * 128,
    "/".join(["x" * 200] * 21),
    "..",
    "dangling",
    "fifo",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read_or_written(workspace: Path, path: str) -> None:
    (workspace / "a").mkdir()
    (workspace / "link.txt").symlink_to("../../secret.txt")
    (workspace / "dirlink").symlink_to("../..")
    (workspace / "a" / "inner").symlink_to(workspace.parent.parent)
    (workspace / "dangling").symlink_to(workspace.parent / "made")
    os.mkfifo(workspace / "fifo")
    calls: list[tuple[Tool, dict[str, str]]] = [
        (read_file, {}),
        (write_file, {"content": "changed"}),
        (edit_file, {"old": "outside", "new": "changed"}),
        (list_files, {}),
        (search_files, {"pattern": "outside"}),
    ]
    for tool, more in calls:
        with pytest.raises(ToolError):
            call(tool, workspace, path=path, **more)
    assert (workspace.parent.parent / "secret.txt").read_text() == "outside"
    assert not (workspace.parent / "made").exists()


def test_a_folder_swapped_for_a_link_in_a_race_leads_nowhere(workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    (workspace / "real").mkdir()
    (workspace / "real" / "f").write_text("inside")
    (workspace / "link").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(workspace / "real", workspace / "d")
            os.rename(workspace / "d", workspace / "real")
            os.rename(workspace / "link", workspace / "d")
            os.rename(workspace / "d", workspace / "link")

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = []
    try:
        for number in range(1500):
            try:
                read.append(call(read_file, workspace, path="d/f"))
                call(edit_file, workspace, number, path="d/f", old="side", new="side")
            except ToolError:
                continue
    finally:
        stop.set()
        swapper.join()
    assert set(read) == {"inside"}
    assert (outside / "f").read_text() == "outside"


def test_list_read_and_search(workspace: Path) -> None:
    call(write_file, workspace, path="notes/one.txt", content="Alpha beta\ngamma\nALPHA and Beta\n")
    call(write_file, workspace, 2, path="two.bin", content="alpha\0")
    (workspace / "link").symlink_to("notes")
    assert call(list_files, workspace, path=".").splitlines() == [
        "link (a link or device, not followed)",
        "notes/",
        "two.bin (6 bytes)",
    ]
    assert call(read_file, workspace, path="notes/one.txt", start=2, lines=1) == "gamma\n[lines 2 to 2 of 3]"
    assert call(search_files, workspace, pattern="alpha*beta").splitlines() == [
        "notes/one.txt:1: Alpha beta",
        "notes/one.txt:3: ALPHA and Beta",
    ]
    assert call(search_files, workspace, pattern="(a+)+$") == "[nothing matches '(a+)+$']"
    for path, said in [
        ("two.bin", "binary"),
        ("absent", "no file"),
        ("absent/x", "no 'absent/x'"),
        ("notes", "not a file"),
    ]:
        with pytest.raises(ToolError, match=said):
            call(read_file, workspace, path=path)
    with pytest.raises(ToolError, match="past its end"):
        call(read_file, workspace, path="notes/one.txt", start=4)


def test_output_is_capped_with_a_remark(workspace: Path) -> None:
    call(write_file, workspace, path="big", content="ü" * OUTPUT_LIMIT)
    text = call(read_file, workspace, path="big")
    assert text.endswith(f"[cut: {OUTPUT_LIMIT} of {2 * OUTPUT_LIMIT} bytes are shown]")
    assert len(text.encode()) < OUTPUT_LIMIT + 100


def test_a_written_file_is_found_by_its_digest_and_can_be_undone(workspace: Path) -> None:
    call(write_file, workspace, 1, path="f", content="first")
    (workspace / "f").chmod(0o640)
    given = {"path": "f", "content": "second"}
    op = operation(workspace, 2, **given)
    assert write_file.lookup_fn is not None
    assert write_file.lookup_fn(op) is None
    written = write_file(**given, op=op)
    assert written.sha256 == hashlib.sha256(b"second").hexdigest()
    assert (workspace / "f").stat().st_mode & 0o777 == 0o640
    assert write_file.lookup_fn(op) == written
    assert write_file(**given, op=op) == written  # repeated although it is there: the record of the past stays
    restore_file(op, written)
    restore_file(op, written)
    assert (workspace / "f").read_text() == "first"
    assert write_file.lookup_fn(op) is None
    assert [entry.name for entry in workspace.iterdir()] == ["f"]


def test_undoing_a_new_file_removes_it_but_never_somebody_elses_change(workspace: Path) -> None:
    op = operation(workspace, 1, path="new/f", content="mine")
    written = write_file(**op.arguments, op=op)
    (workspace / "new/f").write_text("theirs")
    with pytest.raises(ToolError, match="changed since"):
        restore_file(op, written)
    assert write_file.lookup_fn is not None
    with pytest.raises(ToolError, match="somebody changed it"):
        write_file.lookup_fn(op)
    (workspace / "new/f").write_text("mine")
    restore_file(op, written)
    assert not (workspace / "new/f").exists()


@pytest.mark.parametrize(("text", "said"), [("b b", "2 times"), ("x", "does not stand")])
def test_an_edit_needs_one_place(workspace: Path, text: str, said: str) -> None:
    (workspace / "f").write_text(text)
    with pytest.raises(ToolError, match=said):
        call(edit_file, workspace, path="f", old="b", new="c")
    assert (workspace / "f").read_text() == text


def test_an_edit_is_found_even_if_it_leaves_the_old_piece_standing(workspace: Path) -> None:
    (workspace / "f").write_text("one b")
    op = operation(workspace, 1, path="f", old="b", new="b b")
    assert edit_file.lookup_fn is not None
    assert edit_file.lookup_fn(op) is None
    written = edit_file(**op.arguments, op=op)
    assert edit_file.lookup_fn(op) == written
    restore_file(op, written)
    assert (workspace / "f").read_text() == "one b"


def test_a_killed_write_leaves_the_old_file_and_is_surely_not_made(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("old")
    op = operation(workspace, 1, path="f", content="new")

    class KilledError(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("activities.tools.files.replace", killed)
        with pytest.raises(KilledError):
            write_file(**op.arguments, op=op)
    assert (workspace / "f").read_text() == "old"
    assert write_file.lookup_fn is not None
    assert write_file.lookup_fn(op) is None
    written = write_file(**op.arguments, op=op)
    restore_file(op, written)
    assert (workspace / "f").read_text() == "old"
