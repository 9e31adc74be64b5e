"""What the end of a run does about what there is to undo."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from workflows import undoing
from workflows.agent_run import AgentRun
from workflows.catalog import EFFECT_DOUBT, EFFECT_PLAN
from workflows.records import Call, Head, ToolRequest
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


async def test_a_call_whose_outcome_no_attempt_could_write_down_goes_to_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it is that breaks them."""
    tried: list[str] = []

    async def broken(name: str, **_: Any) -> Any:
        tried.append(name)
        error = ActivityError(
            "broken",
            scheduled_event_id=1,
            started_event_id=2,
            identity="",
            activity_type=name,
            activity_id="1",
            retry_state=None,
        )
        error.__cause__ = ApplicationError("OSError in the tool", type="ToolFailed")
        raise error

    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(task_queue="q"))
    monkeypatch.setattr(workflow, "patched", lambda _: True)
    monkeypatch.setattr(workflow, "execute_activity", broken)
    run = object.__new__(AgentRun)
    run.state = RunState(branch="b")
    call = Call(id="1.0", tool="act", decision="allow", summary="act", effect="once", operation_id="run-1.a:act:1")
    request = ToolRequest(
        thread="run-1.a", branch="b", head=Head(branch="b", sequence=1, sha256="0"), bundle="0", call=call
    )
    answer = await run._attempts(call, request)
    assert (tried, answer.status) == (["tool.run", "effect.doubt"], "review")
    assert 0 < (EFFECT_DOUBT.retry.maximum_attempts or 0) < 1000, "and these have an end"
