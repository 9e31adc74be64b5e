"""What an open run waits for, out of what the service says of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from workers.causes import Kind, Seen, from_description, from_visibility
from workflows.catalog import CHILD_END, CHILD_WATCH, PARENT_WATCH, PROJECT_ENDED, STILL_OPEN, Command

NOW = datetime.now(UTC)
RUN = Seen("run-1", "r", "perdure", NOW - timedelta(hours=2), status="running")
APPROVAL = Seen("run-2", "r", "perdure", NOW, status="waiting", waiting_on=["approval"], since=NOW - timedelta(days=3))


def everybody(queue: str, kind: Kind, build: str) -> bool:
    return True


def nobody(queue: str, kind: Kind, build: str) -> bool:
    return False


def described(state: PendingActivityState.ValueType, attempt: int = 1) -> DescribeWorkflowExecutionResponse:
    answer = DescribeWorkflowExecutionResponse()
    pending = answer.pending_activities.add(state=state, attempt=attempt)
    pending.activity_type.name = "model.turn"
    pending.scheduled_time.FromDatetime(NOW - timedelta(minutes=1))
    return answer


def test_a_run_that_waits_for_people_needs_no_look() -> None:
    cause = from_visibility(APPROVAL, everybody)
    assert cause is not None
    assert (cause.kind, cause.since) == ("approval", APPROVAL.since)
    assert cause.is_stuck(NOW, timedelta(hours=1))
    assert not cause.is_stuck(NOW, timedelta(days=7))


def test_the_remedy_is_that_of_what_the_run_waits_for() -> None:
    idle = replace(APPROVAL, waiting_on=["message"])
    cause = from_visibility(idle, everybody)
    assert cause is not None
    assert "--name message" in cause.remedy
    for kind in ("store", "message", "workspace"):
        parked = replace(RUN, status="parked", waiting_on=[kind])
        cause = from_description(parked, DescribeWorkflowExecutionResponse(), everybody)
        assert (cause.kind, "--type status" in cause.remedy) == (kind, True)


def test_a_decision_that_no_worker_takes_up_is_seen_behind_the_approval() -> None:
    assert from_visibility(APPROVAL, nobody) is None, "a look is needed"
    answer = DescribeWorkflowExecutionResponse()
    assert from_description(APPROVAL, answer, nobody).kind == "approval"
    answer.pending_workflow_task.state = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    assert from_description(APPROVAL, answer, nobody).kind == "no_worker"


def test_a_run_pinned_to_a_version_without_workers_names_it_and_the_way_out() -> None:
    pinned = Seen("run-3", "r", "perdure", NOW, status="running", build="2024.1")

    def others(queue: str, kind: Kind, build: str) -> bool:
        return build != "2024.1"

    cause = from_visibility(pinned, others)
    assert cause is not None
    assert (cause.kind, cause.detail) == ("no_worker", "no worker for build 2024.1")
    assert "PERDURE_BUILD_ID=2024.1 perdure worker" in cause.remedy
    assert "perdure deploy, from its code" in cause.remedy, "no other build is there to take it"
    moved = from_visibility(replace(pinned, rescue="2024.2"), others)
    assert moved is not None
    assert "to 2024.2, the current build: temporal workflow update-options -w run-3" in moved.remedy
    asked = replace(APPROVAL, build="2024.1")
    idle = from_visibility(asked, others)
    assert idle is not None
    assert idle.detail == cause.detail, "an approval would not be heard"


def test_a_model_at_work_is_no_fault_until_it_is_silent_or_fails_again_and_again() -> None:
    working = described(PendingActivityState.PENDING_ACTIVITY_STATE_STARTED)
    cause = from_description(RUN, working, everybody)
    assert (cause.kind, cause.failing) == ("model", False)
    assert not cause.is_stuck(NOW, timedelta(0))
    assert cause.is_stuck(NOW + timedelta(minutes=20), timedelta(hours=1)), "the hour is for people"
    failing = described(PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED, attempt=4)
    failing.pending_activities[0].last_failure.message = "HTTP 500"
    cause = from_description(RUN, failing, everybody)
    assert (cause.kind, cause.failing) == ("model", True)
    assert "HTTP 500" in cause.detail
    assert from_description(RUN, failing, nobody).kind == "no_worker", "nobody is there to try it again"


def watching(answer: DescribeWorkflowExecutionResponse, command: Command[Any, Any], why: str = STILL_OPEN) -> None:
    """Adds a watch of another run that has looked, and found it open."""
    state = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
    pending = answer.pending_activities.add(state=state, attempt=7)
    pending.activity_type.name = command.name
    pending.scheduled_time.FromDatetime(NOW - timedelta(minutes=30))
    pending.last_failure.application_failure_info.type = why


@pytest.mark.parametrize("command", [PARENT_WATCH, CHILD_WATCH, CHILD_END, PROJECT_ENDED], ids=lambda each: each.name)
def test_a_watch_that_finds_its_run_open_is_no_fault(command: Command[Any, Any]) -> None:
    answer = described(PendingActivityState.PENDING_ACTIVITY_STATE_STARTED)
    watching(answer, command)
    cause = from_description(RUN, answer, everybody)
    assert (cause.kind, cause.failing) == ("model", False), "its own work is what it waits for"
    alone = DescribeWorkflowExecutionResponse()
    watching(alone, command)
    cause = from_description(RUN, alone, everybody)
    assert cause.kind == ("running" if command is PARENT_WATCH else "children")
    assert not cause.is_stuck(NOW + timedelta(days=1), timedelta(0))
    broken = DescribeWorkflowExecutionResponse()
    watching(broken, command, "Boom")
    assert from_description(RUN, broken, everybody).failing, "another failure of it is one"


def test_a_failure_that_somebody_can_mend_is_named_for_what_it_is() -> None:
    answer = described(PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED, attempt=2)
    answer.pending_activities[0].last_failure.application_failure_info.type = "StoreUnavailable"
    assert from_description(RUN, answer, everybody).kind == "store"


def test_a_failing_workflow_task_is_named_with_its_message() -> None:
    answer = DescribeWorkflowExecutionResponse()
    answer.pending_workflow_task.state = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
    answer.pending_workflow_task.attempt = 7
    cause = from_description(RUN, answer, everybody, "KeyError: x")
    assert (cause.kind, cause.detail) == ("task_failing", "KeyError: x")
