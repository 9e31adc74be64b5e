"""The workspace as state: two machines over one store, seen as two folders."""

import os
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from activities import folders
from activities.canonical import sha256
from activities.closing import artifacts
from activities.earlier import EarlierContents
from activities.entries import Entries
from activities.errors import WorkspaceUnavailable
from activities.listing import Change, Kept, git_head, merge
from activities.store import RemoteStore
from activities.tools import undo
from activities.workspaces import Workspaces
from workflows.keys import file_key
from workflows.records import Files

T = "run.000000000001"


@pytest.fixture
def store() -> RemoteStore:
    return RemoteStore(MemoryStore(), "memory")


@pytest.fixture
def here(store: RemoteStore, tmp_path: Path) -> Workspaces:
    return Workspaces(store, Entries(store), tmp_path / "here")


@pytest.fixture
def there(store: RemoteStore, tmp_path: Path) -> Workspaces:
    return Workspaces(store, Entries(store), tmp_path / "there")


async def snap(workspaces: Workspaces, files: Files, at: str = "") -> Files:
    change = (await workspaces.snapshot(T, files, at)).change
    return files if change is None else files.plus(change)


def seen(workspaces: Workspaces) -> dict[str, str]:
    root = workspaces.path(T)
    return {
        path.relative_to(root).as_posix(): f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


async def test_another_machine_gets_every_kind_of_path(here: Workspaces, there: Workspaces) -> None:
    root = here.path(T)
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "deep.txt").write_text("deep")
    (root / "run.sh").write_text("#!/bin/sh")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    (root / "outside").symlink_to("/etc/passwd")
    (root / "empty").mkdir()
    (root / ".perdure-half.tmp").write_text("half")
    files = await snap(here, Files())
    await there.restore(T, files, "t1")
    assert seen(there) == {
        "a/b/deep.txt": "deep",
        "run.sh": "#!/bin/sh",
        "link": "-> run.sh",
        "outside": "-> /etc/passwd",
    }
    assert (there.path(T) / "empty").is_dir()
    assert os.access(there.path(T) / "run.sh", os.X_OK)
    assert await snap(there, files) == files, "a restored folder holds nothing new"


async def test_only_what_changed_is_stored_again(here: Workspaces, store: RemoteStore) -> None:
    for number in range(20):
        (here.path(T) / f"{number}.txt").write_text(f"text {number}")
    files = await snap(here, Files())
    before = len(await store.keys("threads"))
    (here.path(T) / "3.txt").write_text("other")
    (here.path(T) / "4.txt").unlink()
    files = await snap(here, files)
    assert len(await store.keys("threads")) == before + 2, "one content and one record"
    assert await snap(here, files) == files
    listing = await here.listing(T, files)
    assert len(listing) == 19
    assert (await here.content(T, listing["3.txt"])) == b"other"


async def test_a_folder_follows_the_record_and_keeps_what_people_put_there(here: Workspaces, there: Workspaces) -> None:
    (here.path(T) / "x").write_text("1")
    (here.path(T) / "gone").write_text("1")
    files = await snap(here, Files())
    await there.restore(T, files, "t1")
    (there.path(T) / "x").write_text("2")
    (there.path(T) / "gone").unlink()
    files = await snap(there, files)
    (here.path(T) / "by-hand").write_text("mine")
    await here.restore(T, files, "t2")
    assert seen(here) == {"x": "2", "by-hand": "mine"}
    files = await snap(here, files)
    assert set(await here.listing(T, files)) == {"x", "by-hand"}


async def test_calls_of_one_turn_on_two_machines_add_up(here: Workspaces, there: Workspaces) -> None:
    (here.path(T) / "base").write_text("base")
    start = await snap(here, Files())
    await here.restore(T, start, "t1")
    await there.restore(T, start, "t1")
    (here.path(T) / "mine").write_text("mine")
    (there.path(T) / "yours").write_text("yours")
    one, two = await snap(here, start), await snap(there, start)
    both = two.plus(one.changes[-1])
    (here.path(T) / "at work").write_text("a call that still runs")
    await here.restore(T, both, "t1")
    assert set(seen(here)) == {"base", "mine", "yours", "at work"}
    assert set(await there.listing(T, both)) == {"base", "mine", "yours"}


async def test_a_reset_takes_the_folder_back(here: Workspaces) -> None:
    (here.path(T) / "x").write_text("1")
    first = await snap(here, Files())
    await here.restore(T, first, "t1")
    (here.path(T) / "x").write_text("2")
    (here.path(T) / "y").write_text("new")
    await snap(here, first)
    await here.restore(T, first, "t1-again")
    assert seen(here) == {"x": "1"}


async def test_a_removed_folder_is_restored(here: Workspaces) -> None:
    (here.path(T) / "x").write_text("1")
    files = await snap(here, Files())
    (here.path(T) / "x").unlink()
    here.path(T).rmdir()
    await here.restore(T, files, "t1")
    assert seen(here) == {"x": "1"}


async def test_a_file_takes_the_place_of_a_folder_and_a_link(here: Workspaces, there: Workspaces) -> None:
    (here.path(T) / "a").mkdir()
    (here.path(T) / "a" / "b").write_text("1")
    (here.path(T) / "l").symlink_to("/tmp")
    files = await snap(here, Files())
    await there.restore(T, files, "t1")
    (there.path(T) / "a" / "b").unlink()
    (there.path(T) / "a").rmdir()
    (there.path(T) / "a").write_text("now a file")
    (there.path(T) / "l").unlink()
    (there.path(T) / "l").mkdir()
    (there.path(T) / "l" / "inside").write_text("not in /tmp")
    files = await snap(there, files)
    await here.restore(T, files, "t2")
    assert seen(here) == {"a": "now a file", "l/inside": "not in /tmp"}
    assert not (Path("/tmp") / "inside").exists()


@pytest.mark.parametrize("damage", ["gone", "altered"])
async def test_a_content_that_cannot_be_had_is_named(
    here: Workspaces, there: Workspaces, store: RemoteStore, damage: str
) -> None:
    (here.path(T) / "x").write_text("1")
    files = await snap(here, Files())
    kept = (await here.listing(T, files))["x"]
    key = file_key(T, kept.sha256 or "")
    await store.delete(key.rpartition("/")[0]) if damage == "gone" else await store.put(key, b"2")
    with pytest.raises(WorkspaceUnavailable, match=kept.sha256):
        await there.restore(T, files, "t1")
    with pytest.raises(WorkspaceUnavailable):
        await there.check(T, files)
    await store.put(key, b"1")
    await there.restore(T, files, "t1")
    assert seen(there) == {"x": "1"}


async def test_many_changes_become_one_listing(here: Workspaces, there: Workspaces) -> None:
    files = Files()
    for number in range(10):
        (here.path(T) / "x").write_text(str(number))
        files = await snap(here, files)
    folded = await here.fold(T, files)
    assert folded.changes == []
    assert await here.listing(T, folded) == await here.listing(T, files)
    assert await here.fold(T, folded) == folded
    await there.restore(T, folded, "t1")
    assert seen(there) == {"x": "9"}


def test_changes_of_one_folder_count_in_the_order_in_which_they_were_seen() -> None:
    early = Change(origin="a", number=1, changed={"x": Kept(sha256="1")})
    late = Change(origin="a", number=2, changed={"x": Kept(sha256="2")})
    other = Change(origin="b", number=1, changed={"x": Kept(sha256="3")})
    assert merge({}, [late, early])["x"].sha256 == "2"
    assert merge({}, [late, early, other])["x"].sha256 == "3"


def test_the_commit_of_a_repository_is_read_from_its_files() -> None:
    loose = {".git/HEAD": b"ref: refs/heads/main\n", ".git/refs/heads/main": b"abc\n"}
    packed = {".git/HEAD": b"ref: refs/heads/main\n", ".git/packed-refs": b"# pack-refs\nabd refs/heads/main\n"}
    assert (git_head(loose), git_head(packed), git_head({".git/HEAD": b"abe\n"}), git_head({})) == (
        *("abc", "abd", "abe"),
        None,
    )


async def test_what_a_file_held_before_is_known_on_another_machine(store: RemoteStore, tmp_path: Path) -> None:
    here, there = (EarlierContents(store, tmp_path / name) for name in ("here", "there"))
    for number, content in enumerate((b"old", None), 1):
        undo.put(tmp_path / "here" / T, f"{T}:write_file:{number}", undo.Kept(content))
        await here.keep(T, f"{T}:write_file:{number}")
        await there.fetch(T, f"{T}:write_file:{number}")
        assert undo.find(tmp_path / "there" / T, f"{T}:write_file:{number}") == undo.Kept(content)
    await there.fetch(T, f"{T}:write_file:3")
    assert undo.find(tmp_path / "there" / T, f"{T}:write_file:3") is None
    await store.delete(file_key(T, sha256(b"old")).rpartition("/")[0])
    with pytest.raises(WorkspaceUnavailable, match="missing from the store"):
        await EarlierContents(store, tmp_path / "third").fetch(T, f"{T}:write_file:1")


@pytest.mark.parametrize("changes_before", [0, 1])
async def test_a_change_of_an_attempt_that_was_killed_is_reported_by_the_next_one(
    here: Workspaces, there: Workspaces, changes_before: int
) -> None:
    files = Files()
    for _ in range(changes_before):
        (here.path(T) / "a").write_text("1")
        files = await snap(here, files, "t0")
    await here.restore(T, files, "t1")
    (here.path(T) / "b").write_text("2")
    killed = await snap(here, files, "t1")
    assert killed != files, "stored, and then nobody heard of it"
    await here.restore(T, files, "t1")
    assert (here.path(T) / "b").exists(), "it stays there"
    found = await snap(here, files, "t1")
    assert "b" in await here.listing(T, found)
    await there.restore(T, found, "t2")
    await here.restore(T, found, "t2")
    assert seen(there) == seen(here) == dict([("a", "1")][:changes_before], b="2")


async def test_names_that_are_not_utf8_are_kept_apart_and_come_back(here: Workspaces, there: Workspaces) -> None:
    root = os.fsencode(here.path(T))
    os.makedirs(root + b"/d\xe9")
    for name in (b"\xe8.txt", b"\xe9.txt", b"d\xe9/\xff.txt", b"\xef\xbf\xbd.txt", rb"\xe8.txt", "é.txt".encode()):
        (here.path(T) / os.fsdecode(name)).write_text(ascii(name))
    os.symlink(b"d\xe9/\xff.txt", root + b"/l\xe9")
    files = await snap(here, Files())
    assert (await here.snapshot(T, files, "")).change is None, "nothing has changed since"
    await there.restore(T, files, "1")
    assert seen(there) == seen(here)
    assert len(seen(there)) == 7
    listed = [each["path"] for each in artifacts(T, await there.listing(T, files))]
    assert "d\\xe9/\\xff.txt" in listed, "as people can read it"
    os.unlink(root + b"/d\xe9/\xff.txt")
    os.rmdir(root + b"/d\xe9")
    files = await snap(here, files)
    await there.restore(T, files, "2")
    assert seen(there) == seen(here)
    assert not (there.path(T) / os.fsdecode(b"d\xe9")).exists()


async def test_a_file_that_cannot_be_read_is_not_kept_and_named(
    here: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.path(T) / "open.txt").write_text("o")
    (here.path(T) / "secret.txt").write_text("s")
    read = folders.read_file

    def refused(root: Path, path: str) -> tuple[bytes, folders.Stamp] | None:
        if path == "secret.txt":  # the tests may run as root, who is let in everywhere
            raise PermissionError(13, "Permission denied")
        return read(root, path)

    monkeypatch.setattr(folders, "read_file", refused)
    taken = await here.snapshot(T, Files(), "")
    assert taken.too_large == ["secret.txt"]
    assert "secret.txt" in taken.remark()
    assert taken.change is not None
    assert list(await here.listing(T, Files().plus(taken.change))) == ["open.txt"]
