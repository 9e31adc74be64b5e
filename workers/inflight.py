"""What a worker is doing at this moment: every activity that runs, by name, since when, and for how long it may."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.noting import NOTES
from workers.steps import Step
from workers.watching import Observers
from workflows.records import ToolRequest

LATE = 30.0
"""An activity still here this many seconds past its limit holds its slot for nothing: the server gave it up."""


@dataclass(frozen=True)
class Running:
    """One attempt of an activity. `what` names it for people: the tool where it is one."""

    what: str
    queue: str
    run: str
    task: "asyncio.Task[Any]"
    since: float
    limit: float | None


class InFlight(Interceptor):
    """Books the activities of all workers of this process."""

    def __init__(self, observers: Observers | None = None) -> None:
        self._running: dict[int, Running] = {}
        self._observers = observers or Observers()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002, the SDK's
        """Wraps the activities of one worker."""
        return _Booked(next, self._running, self._observers)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._running.values()))

    def of(self, task: "asyncio.Task[Any] | None") -> str | None:
        """What that task does, if it is an activity's."""
        return next((each.what for each in self if each.task is task), None)

    def wedged(self) -> Counter[str]:
        """By task queue, the activities that are past their limit and still hold a slot."""
        now = time.monotonic()
        late = [each for each in self if each.limit is not None and now > each.since + each.limit + LATE]
        return Counter(each.queue for each in late)

    def cancel(self) -> list[str]:
        """Cancels them all, so that the server gives them to another worker at once; says which they were."""
        stopped = list(self)
        for each in stopped:
            each.task.cancel()
        return [each.what for each in stopped]


class _Booked(ActivityInboundInterceptor):
    def __init__(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002
        running: dict[int, Running],
        observers: Observers,
    ) -> None:
        super().__init__(next)
        self._running, self._observers = running, observers

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info, task = activity.info(), asyncio.current_task()
        assert task is not None, "activities run as tasks"
        limit = info.start_to_close_timeout
        self._running[id(task)] = Running(
            what=what_of(input),
            queue=info.task_queue,
            run=info.workflow_id or "",
            task=task,
            since=time.monotonic(),
            limit=limit.total_seconds() if limit else None,
        )
        began, notes, result, failed = time.time_ns(), dict[str, Any](), None, None
        token = NOTES.set(notes)
        try:
            result = await super().execute_activity(input)
        except BaseException as error:
            failed = error
            raise
        finally:
            NOTES.reset(token)
            del self._running[id(task)]
            self._observers.tell(
                Step(
                    activity=info.activity_type,
                    workflow_id=info.workflow_id or "",
                    run_id=info.workflow_run_id or "",
                    attempt=info.attempt,
                    began=began,
                    ended=time.time_ns(),
                    request=input.args[0] if input.args else None,
                    result=result,
                    error=failed,
                    notes=notes,
                )
            )
        return result


def what_of(input: ExecuteActivityInput) -> str:  # noqa: A002, the SDK's word
    """`tool NAME` for a tool call, else the activity's name on the wire."""
    request = input.args[0] if input.args else None
    return f"tool {request.call.tool}" if isinstance(request, ToolRequest) else activity.info().activity_type
