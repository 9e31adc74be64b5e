"""The replay of histories with today's code: what it says of those that fit, of one that does not, and of patches."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import WorkflowHistory

from tests.durable.corpus import HISTORIES, read
from workers.client import WORKER_DATA_CONVERTER
from workers.replaying import replay, replay_with_patches

PLAIN = HISTORIES / "1" / "plain-1.json"


async def each(*histories: WorkflowHistory) -> AsyncIterator[WorkflowHistory]:
    for history in histories:
        yield history


def diverged() -> WorkflowHistory:
    """A run whose first turn was another activity."""
    return WorkflowHistory.from_json("other", PLAIN.read_text().replace('"model.turn"', '"model.guess"'))


async def test_a_history_that_does_not_fit_is_named_and_hides_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    found = [one async for one in replay(each(diverged(), read(PLAIN)), WORKER_DATA_CONVERTER)]
    assert [(one.workflow_id, one.fault is None) for one in found] == [("other", False), ("plain", True)]
    assert "model.guess" in str(found[0].fault)
    assert found[1].events > 10
    assert capfd.readouterr().out == "", "what a command prints is its own"


async def test_without_a_patch_in_its_way_a_history_needs_none() -> None:
    [one] = [one async for one in replay_with_patches(each(read(PLAIN)), WORKER_DATA_CONVERTER)]
    assert (one.fault, one.patches) == (None, {})
