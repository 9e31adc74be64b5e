"""Notices, without anybody to tell."""

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

from temporalio.testing import ActivityEnvironment

from activities.manifest import Approvals
from activities.notices import NoticeActivities
from workflows.notices import Noticed, NoticeRequest


async def test_a_time_that_the_bundle_has_no_more_tells_nobody() -> None:
    """A request that was told of twice outlives an upgrade to a bundle that tells once."""
    approvals = Approvals.model_validate({"notify": [{"webhook": "ops"}]})
    manifest = SimpleNamespace(file=SimpleNamespace(approvals=approvals))
    world = SimpleNamespace(bundles=SimpleNamespace(manifest=AsyncMock(return_value=manifest)))
    request = NoticeRequest(thread="run-1.a", bundle="d", item={"code": "AAAA"}, goal="g", stage=1)
    notify = NoticeActivities(cast("Any", world)).notify
    assert await ActivityEnvironment().run(notify, request) == Noticed()
