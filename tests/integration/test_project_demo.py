"""`./scripts/run --project`, as a person sees it."""

from pathlib import Path

import pytest

from scripts.demo.project import play_project
from tests.isolation import isolation


@isolation
@pytest.mark.all
async def test_a_project_outlives_five_kills_of_worker_and_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The verdict looks the repository up; a seed that fails is in the output."""
    assert await play_project(state=tmp_path) == 0, capfd.readouterr().out
