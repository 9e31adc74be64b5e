"""What does not decode is named: the model and the field, and no activity runs on it.

The SDK would say "Failed decoding arguments" and try again for ever. A worker of another release may well be able to
read it, so the activity fails by name, and the run parks. In a workflow there is nothing to park with: what a run does
next depends on what it reads, so its task fails, by the same name, and goes on under code that can read it.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.errors import IncompatiblePayload
from workflows.messages import explain


@dataclass(frozen=True)
class Misfit:
    """Stands in the place of an input that does not fit its model."""

    said: str


class MisfitError(Exception):
    """In a workflow: its task fails with these words."""


def misfit(error: ValidationError, hint: type[BaseModel]) -> Misfit:
    """The value for an activity's input. Raises MisfitError inside a workflow."""
    said = f"{hint.__name__}: {explain(error)}. It was written by another release"
    if workflow.in_workflow() or not _on_a_loop():
        raise MisfitError(f"IncompatiblePayload: {said}: this code cannot go on with the run, that one can") from None
    return Misfit(said)


def _on_a_loop() -> bool:
    """Activities are decoded on the worker's event loop; what a workflow gets, before its own loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class NoMisfits(Interceptor):
    """Keeps activities from running on what did not decode."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Before every other interceptor, so that none sees a misfit."""
        return _Refusing(next)


class _Refusing(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, the SDK's word
        for value in input.args:
            if isinstance(value, Misfit):
                raise IncompatiblePayload(value.said)
        return await super().execute_activity(input)
