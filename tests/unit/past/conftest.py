"""What the tests of forks share: a world without a server, and a run that may be forked."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities import settled
from activities.tools.executor import Executor
from activities.world import World
from tests.unit.past.forked import SOURCE, TOOLS
from tests.unit.past.recorded import Recorded
from workflows.records import Item


async def nobody(*_: Any) -> dict[str, Item]:
    """No Temporal service answers."""
    return {}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = Recorded(tmp_path)
    executor = Executor(threads=1)
    monkeypatch.setattr(settled, "_asked", nobody)
    yield World(
        made.store,
        made.registry,
        executor,
        lambda _: None,
        bundle_folders=[tmp_path / "bundles"],
        workspaces=tmp_path / "workspaces",
    )
    executor.close()


@pytest.fixture
async def run(tmp_path: Path) -> Recorded:
    made = Recorded(tmp_path, SOURCE)
    await made.open(made.bundle("1", TOOLS, policy=[{"tool": "*", "decision": "allow"}]))
    return made
