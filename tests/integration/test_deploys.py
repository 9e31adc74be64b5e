"""What `perdure deploy` looks at before and after it makes a build current: workers of builds, in this process."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.integration.kit import Stack
from workers.client import DATA_CONVERTER
from workers.deployments import current_build


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


async def test_a_deploy_takes_no_work_from_another_installation(own: Client, tmp_path: Path) -> None:
    here, there = installation(own, tmp_path, "here", "b1"), installation(own, tmp_path, "there", "b1")
    there_too = installation(own, tmp_path, "there", "b2")
    async with here.worker(), there.worker(), there_too.worker():
        first = await there.shell("perdure deploy")
        assert first.returncode == 0, first.stderr
        refused = await there_too.shell("perdure deploy")
        assert refused.returncode == 1, refused.stdout
        assert "'here', 'here-tools'" in refused.stderr
        assert await current_build(own) == "b1", "nothing was changed"
        async with installation(own, tmp_path, "here", "b2").worker():
            moved = await there_too.shell("perdure deploy --json")
    assert moved.returncode == 0, moved.stderr
    assert await current_build(own) == "b2"
    assert {each["build"]: each["status"] for each in json.loads(moved.stdout)["versions"]}["b2"] == "current"
