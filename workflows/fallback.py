"""The answer to a start with a workflow type that does not exist: a failure with the list of those that do."""

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

KNOWN = ("AgentRun", "ProjectRun")


@workflow.defn(dynamic=True)
class UnknownWorkflow:
    """Fails at once; without it such a run would hang."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> None:
        """Raises InvalidInput."""
        raise ApplicationError(
            f"there is no workflow type {workflow.info().workflow_type!r}; there are: {', '.join(KNOWN)}",
            type="InvalidInput",
            non_retryable=True,
        )
