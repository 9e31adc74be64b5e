"""What commands say where runs or workers cannot be asked: that it is not known, and not that all is well."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError

from scripts.commands import builds, pending
from workers.checkup import _unversioned
from workers.replaying import Replayed

FAILED = "[TMPRL1100] Nondeterminism error"


async def test_runs_whose_queries_fail_are_named_and_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ids(*_: Any) -> AsyncIterator[str]:
        yield "broken"

    async def nothing(*_: Any) -> list[str]:
        return []

    async def fails(*_: Any) -> Any:
        raise WorkflowQueryFailedError(FAILED)

    monkeypatch.setattr(pending, "connect", nothing)
    monkeypatch.setattr(pending, "missing_search_attributes", nothing)
    monkeypatch.setattr(pending, "_ids", ids)
    monkeypatch.setattr(pending, "_asked_by", fails)
    assert await pending._pending(None, None, as_json=False) == 1
    said = capsys.readouterr()
    assert f"broken: {FAILED}" in said.err
    assert "Nothing waits" not in said.out


async def test_patches_of_runs_that_do_not_replay_are_an_answer_of_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults: list[str | None] = [FAILED]

    async def listed(*_: Any) -> AsyncIterator[Any]:
        for each in list[Any]():
            yield each

    async def replayed(*_: Any) -> AsyncIterator[Replayed]:
        yield Replayed("broken", "", 9, faults[-1])

    async def connect(*_: Any) -> None:
        return None

    for name, stand_in in (("connect", connect), ("listed", listed), ("replay_with_patches", replayed)):
        monkeypatch.setattr(builds, name, stand_in)
    assert await builds._patches(as_json=False) == 1
    assert "put `deprecate_patch`" not in capsys.readouterr().out
    faults.append(None)
    assert await builds._patches(as_json=False) == 0
    assert "put `deprecate_patch`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("polls", "state", "remedy"),
    [
        ({"": 2}, "ok", ""),
        ({}, "ok", ""),
        ({"": 1, "b1": 1}, "warn", "perdure deploy"),
        ({"b1": 1}, "bad", "perdure deploy"),
    ],
)
def test_no_current_version_is_wrong_only_where_all_workers_have_a_build_id(
    polls: dict[str, int], state: str, remedy: str
) -> None:
    found = _unversioned(polls)
    assert (found.state, remedy in found.remedy) == (state, True), found
    assert bool(found.remedy) is bool(remedy)
