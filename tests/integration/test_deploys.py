"""What `perdure deploy` looks at before and after it makes a build current: workers of builds, in this process."""

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.integration.kit import Stack, call, say, until
from workers.client import DATA_CONVERTER
from workers.deployments import current_build, left_behind, polls, set_current
from workers.open_runs import open_runs


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Client]:
    """A server of its own: the current version of a deployment is the whole namespace's."""
    with EmbeddedTemporal(tmp_path / "temporal", port=0, ui_port=0, ui=False, say=lambda _: None) as server:
        yield await Client.connect(server.address, data_converter=DATA_CONVERTER)


def installation(client: Client, folder: Path, name: str, build: str) -> Stack:
    """One installation of the namespace, whose workers are of this build."""
    stack = Stack(client.service_client.config.target_host, folder / f"{name}-{build}", name)
    stack.environment["PERDURE_BUILD_ID"] = build
    return stack


async def start_dead(client: Client, folder: Path, build: str) -> Stack:
    """An installation whose only worker has polled and is gone."""
    stack = installation(client, folder, "here", build)
    async with stack.worker():
        await until(lambda: all_poll(client, stack))
    return stack


async def all_poll(client: Client, stack: Stack) -> bool:
    found = await polls(client, stack.settings(), stack.settings().build_id)
    return all(found.values())


async def test_a_deploy_takes_no_work_from_another_installation(own: Client, tmp_path: Path) -> None:
    here, there = installation(own, tmp_path, "here", "b1"), installation(own, tmp_path, "there", "b1")
    there_too = installation(own, tmp_path, "there", "b2")
    async with here.worker(), there.worker(), there_too.worker():
        await set_current(own, "b1")
        refused = await there_too.shell("perdure deploy")
        assert refused.returncode == 1, refused.stdout
        assert "'here', 'here-tools'" in refused.stderr
        assert await current_build(own) == "b1", "nothing was changed"
        async with installation(own, tmp_path, "here", "b2").worker():
            await until(lambda: none_left(own, there_too))


@pytest.mark.all
async def test_a_first_deploy_takes_no_work_from_unversioned_workers_elsewhere(own: Client, tmp_path: Path) -> None:
    await start_dead(own, tmp_path, "b1")  # its queue is known to the deployment from here on
    there = installation(own, tmp_path, "there", "b2")
    async with installation(own, tmp_path, "here", "").worker(), there.worker():
        refused = await there.shell("perdure deploy")
        assert refused.returncode == 1, refused.stdout
        assert "'here', 'here-tools'" in refused.stderr
        assert not await current_build(own), "nothing was changed"


@pytest.mark.all
async def test_a_run_that_is_pinned_to_no_build_goes_on_with_the_current_one_and_waits_for_it(
    own: Client, tmp_path: Path
) -> None:
    stack = installation(own, tmp_path, "here", "")
    stack.script("waiting", call("write_file", path="a", content="A"), say("done"))
    stack.bundle("waiting", ["write_file"], model=[{"model": "waiting"}])
    stack.serve_model()
    async with stack.worker():
        await stack.start({"goal": "write", "bundle": "waiting"})
        await until(lambda: shown_as(own, "approval"))
    stack.environment["PERDURE_BUILD_ID"] = "b2"
    async with stack.worker():
        await until(lambda: all_poll(own, stack))
        stack.environment["PERDURE_BUILD_ID"] = "b1"
        async with stack.worker():
            await set_current(own, "b1")
            await until(lambda: shown_as(own, "approval"))
        await until(lambda: shown_as(own, "no_worker"), 120)
        [stranded] = await open_runs(own)
        assert (stranded.seen.build, stranded.seen.rescue) == ("b1", "")
        assert "perdure deploy, from its code" in stranded.cause.remedy
        await set_current(own, "b2")
        await until(lambda: shown_as(own, "approval"))
    stack.close()


async def shown_as(client: Client, kind: str) -> bool:
    return [each.cause.kind for each in await open_runs(client)] == [kind]


async def none_left(client: Client, stack: Stack) -> bool:
    return not await left_behind(client, stack.settings(), stack.settings().build_id)


@pytest.mark.all
async def test_a_build_whose_workers_were_killed_is_not_made_current(own: Client, tmp_path: Path) -> None:
    stack = await start_dead(own, tmp_path, "b1")
    refused = await stack.shell("perdure deploy --wait 1s")
    assert refused.returncode == 1, refused.stdout
    assert "no worker of build b1 has polled here and here-tools again" in refused.stderr
    assert "perdure deploy --start" in refused.stderr
    assert not await current_build(own)
    async with stack.worker():
        moved = await stack.shell("perdure deploy")
        again = await stack.shell("perdure deploy --wait 1s")
    assert (moved.returncode, again.returncode) == (0, 0), moved.stderr + again.stderr
    assert await current_build(own) == "b1"


@pytest.mark.all
async def test_start_starts_a_worker_though_one_has_polled_before(own: Client, tmp_path: Path) -> None:
    stack = await start_dead(own, tmp_path, "b1")
    done = await stack.shell("perdure deploy --start --json")
    report = json.loads(done.stdout)
    try:
        assert (done.returncode, await current_build(own)) == (0, "b1"), done.stderr
    finally:
        os.kill(report["worker"]["pid"], signal.SIGKILL)


@pytest.mark.all
async def test_a_build_id_of_other_workflow_code_is_refused(own: Client, tmp_path: Path) -> None:
    stale = installation(own, tmp_path, "here", "1-0123456789ab")
    for command in ("worker", "deploy", "deploy --start"):
        refused = await stale.shell(f"timeout 60 perdure {command}")
        assert refused.returncode == 2, (command, refused.stdout)
        assert "PERDURE_BUILD_ID: 1-0123456789ab was made of other workflow code" in refused.stderr
    shown = await stale.shell("perdure deploy --show")
    assert shown.returncode == 0, shown.stderr
