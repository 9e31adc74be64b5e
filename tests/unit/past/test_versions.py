"""Versions of a bundle: which is the newest, what counts as the first use, and what comes of a change after it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities.bundles import claim_key, version_order
from activities.errors import BundleConflict, BundleUnavailable, InvalidInput
from activities.tools.executor import Executor
from activities.upgrading import UpgradeActivities
from activities.world import World
from scripts import forks
from scripts.commands.bundles import _Known, _line, _list
from scripts.commands.running import NO, Refused
from tests.unit.past.recorded import Recorded
from workers.settings import read_settings
from workflows.records import BundleRef, Head, Limits, Opening
from workflows.upgrade_records import UpgradeRequest

THREAD = "a1.9c41d07be2f5"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded(tmp_path, THREAD)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
async def world(run: Recorded) -> AsyncIterator[World]:
    executor = Executor(threads=1)
    folders = [run.folder / "bundles"]
    yield World(run.store, run.registry, executor, lambda _: None, bundle_folders=folders, workspaces=run.folder / "w")
    executor.close()


def test_the_newest_version_is_the_highest_number_and_no_word() -> None:
    names = ["10", "2.bak", "2", "1.9", "²", "old", "2.1", "99-draft"]
    assert sorted(names, key=version_order) == ["99-draft", "old", "²", "2.bak", "1.9", "2", "2.1", "10"]


async def test_a_folder_in_the_making_is_no_version(world: World, run: Recorded) -> None:
    for version in ("1", ".2", "²"):
        run.bundle(version, [])
    assert set(world.bundles.known()["shop"]) == {"1", "²"}
    assert (await world.bundles.pin("shop", world.specs))[0].version == "1"


async def test_an_empty_prompt_is_refused_and_claims_nothing(world: World, run: Recorded) -> None:
    run.bundle("1", [], prompt=" \n")
    with pytest.raises(InvalidInput, match=r"prompt\.md is empty"):
        await world.bundles.pin("shop@1", world.specs)
    assert await run.store.get(claim_key("shop", "1")) is None


async def test_a_look_at_a_fork_claims_no_version(world: World, run: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    await run.open(run.bundle("1", []))
    await run.turn(text="done")
    run.bundle("2", [])

    async def made(*_: object) -> World:
        return world

    monkeypatch.setattr(forks, "make_world", made)
    client, wanted = await Client.connect("127.0.0.1:1", lazy=True), {"workflow_id": "a1", "checkpoint": 1}
    told = await forks.report(client, read_settings(), forks.fork_input({"fork": wanted}), "shop@2")
    assert told.view()["versions"]["now"]["bundle"] == "shop@2"
    assert await run.store.get(claim_key("shop", "2")) is None


async def test_a_refused_upgrade_claims_no_version(world: World, run: Recorded) -> None:
    run.bundle("1", [])
    run.bundle("2", [], versions={"state_schema": "2"})
    ref, _ = await world.bundles.pin("shop@1", world.specs)
    answer = await ActivityEnvironment().run(
        UpgradeActivities(world).upgrade, UpgradeRequest(bundle="shop@2", opening=opening(ref))
    )
    assert "no migration" in (answer.refused or "")
    assert await run.store.get(claim_key("shop", "2")) is None


def opening(ref: BundleRef) -> Opening:
    head = Head(branch="b", sequence=0, sha256="0")
    return Opening(thread=THREAD, goal="g", bundle=ref, versions={}, limits=Limits(), head=head, budget_wait=1)


async def test_a_damaged_record_of_the_first_use_is_named_with_its_remedy(world: World, run: Recorded) -> None:
    run.bundle("1", [])
    await world.bundles.pin("shop@1", world.specs)
    key = claim_key("shop", "1")
    await run.store.put(key, (await run.store.get(key) or b"")[:40])
    with pytest.raises(BundleUnavailable, match=f"damaged: restore {key}, or delete it"):
        await world.bundles.pin("shop@1", world.specs)
    run.bundle("2", [])
    known = await _Known(read_settings()).read()
    assert "damaged: restore" in (await _line(known, ("shop", "1"), None))["damaged"]
    assert (await _line(known, ("shop", "2"), None))["damaged"] is None, "the others are listed"
    with pytest.raises(Refused, match="damaged: restore"):
        await known.texts("shop@1")


@pytest.mark.parametrize("file", ["bundle.toml", "prompt.md"])
async def test_an_edited_folder_that_does_not_load_is_listed_as_changed(
    world: World, run: Recorded, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run.bundle("1", [])
    await world.bundles.pin("shop@1", world.specs)
    assert await _list("shop", as_json=True) == 0
    (run.folder / "bundles" / "shop" / "1" / file).write_text("" if file == "prompt.md" else "tools = [")
    capsys.readouterr()
    assert await _list("shop", as_json=True) == 1
    assert [line["changed"] for line in json.loads(capsys.readouterr().out)] == [True]


async def test_a_version_that_was_used_keeps_its_content(world: World, run: Recorded) -> None:
    run.bundle("1", [])
    await world.bundles.pin("shop@1", world.specs)
    (run.folder / "bundles" / "shop" / "1" / "prompt.md").write_text("You are another one.\n")
    for look in (world.bundles.look, world.bundles.pin):
        with pytest.raises(BundleConflict, match="You are another one"):
            await look("shop@1", world.specs)


async def test_a_damaged_manifest_is_named_and_its_version_is_not_called_unused(
    world: World, run: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    run.bundle("1", [])
    ref, _ = await world.bundles.pin("shop@1", world.specs)
    await run.store.put(f"bundles/{ref.digest}.json", b"{")
    assert await _list("", as_json=False) == NO
    said = capsys.readouterr()
    assert f"bundles/{ref.digest}.json in the store is damaged" in said.err
    assert "used, and not in" in said.out, "it is not called unused"
