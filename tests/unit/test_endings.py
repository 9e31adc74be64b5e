"""What is said of an execution that ended waits for the service's word."""

from typing import Any, cast

import pytest
from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation, WorkflowActivationJob

from workers.endings import hold, settling

REASONS = RemoveFromCache.EvictionReason


class Instance:
    """As far as it matters."""

    def activate(self, act: WorkflowActivation) -> str:
        """Is activated."""
        return act.run_id


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (REASONS.WORKFLOW_EXECUTION_ENDING, ["ended"]),
        (REASONS.CACHE_FULL, ["ended"]),
        (REASONS.UNHANDLED_COMMAND, []),  # a message came just then: the code runs once more
        (REASONS.TASK_NOT_FOUND, []),
    ],
)
def test_an_end_is_said_when_the_service_took_it(reason: Any, said: list[str]) -> None:
    told: list[str] = []
    instance = settling(cast("Any", Instance()))
    hold("run", lambda: told.append("ended"))
    assert cast("Any", instance.activate(WorkflowActivation(run_id="other"))) == "other"
    assert told == []
    out = WorkflowActivationJob(remove_from_cache=RemoveFromCache(reason=reason))
    instance.activate(WorkflowActivation(run_id="run", jobs=[out]))
    instance.activate(WorkflowActivation(run_id="run", jobs=[out]))
    assert told == said, "once, or not at all"
