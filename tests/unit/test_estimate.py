"""What starting again would have cost."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.failure.v1 import Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent

from workers.estimate import Run, crashes_in, estimate

START = datetime(2026, 11, 1, tzinfo=UTC)


def started(attempt: int, kind: TimeoutType.ValueType | None) -> HistoryEvent:
    event = HistoryEvent(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    attributes = event.activity_task_started_event_attributes
    attributes.attempt = attempt
    if kind is not None:
        attributes.last_failure.CopyFrom(Failure(timeout_failure_info=TimeoutFailureInfo(timeout_type=kind)))
    elif attempt > 1:
        attributes.last_failure.application_failure_info.type = "ModelTrouble"
    return event


def test_only_attempts_whose_worker_was_lost_are_crashes() -> None:
    events = [
        started(1, None),
        started(2, None),
        started(2, TimeoutType.TIMEOUT_TYPE_HEARTBEAT),
        started(2, TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START),
    ]
    assert crashes_in(events) == 1


def test_the_loss_is_half_a_run_for_each_crash() -> None:
    runs = [Run(f"run-{n}", START + timedelta(days=n), 3600, 2.0, int(n == 0)) for n in range(2)]
    told = estimate(runs, runs_per_month=100)
    assert told.crashes_per_run == 0.5
    assert told.lost_usd_per_month == pytest.approx(100 * 0.5 * 2.0 / 2)
    assert told.lost_seconds_per_month == pytest.approx(100 * 0.5 * 3600 / 2)


def test_without_a_number_the_pace_of_the_runs_is_taken() -> None:
    runs = [Run(f"run-{n}", START + timedelta(days=n), 1, 0.0, 0) for n in range(4)]
    assert estimate(runs).runs_per_month == pytest.approx(40)
