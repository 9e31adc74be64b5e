"""What the end of a run does about what there is to undo."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import workflow

from workflows import undoing
from workflows.agent_run import AgentRun
from workflows.catalog import EFFECT_PLAN
from workflows.state import RunState
from workflows.undoing_records import UndoPlan


async def test_the_end_of_a_run_waits_for_a_worker_that_says_what_is_to_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long that takes; a person's message is answered after some minutes."""
    limits: list[Any] = []

    async def planned(*_: Any, schedule_to_close_timeout: Any, **__: Any) -> UndoPlan:
        limits.append(schedule_to_close_timeout)
        return UndoPlan()

    monkeypatch.setattr(undoing, "evicted", lambda: False)
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(task_queue="q"))
    monkeypatch.setattr(workflow, "execute_activity", planned)
    run = object.__new__(AgentRun)
    opening = cast("Any", SimpleNamespace(on_end="compensate", thread="run-1.a"))
    run.state = RunState(branch="b").model_copy(update={"opening": opening})
    await run.undo_at_end()
    await run.undo_plan(None, EFFECT_PLAN)
    assert limits == [None, EFFECT_PLAN.within]
