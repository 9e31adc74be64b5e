"""Links a fork to the trace of the run that it was forked from: a fork is a run, and has a trace, of its own."""

import asyncio
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.converter import PayloadConverter
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.noting import note
from workflows.fork_records import Forked, ForkPoint
from workflows.keys import thread_name

HEADER = "_tracer-data"
"""Where the SDK's plugin carries the trace to an activity."""
SECONDS = 3.0
"""The most that a fork waits for its link."""
_FIRST_EVENTS = 10


class ForkLinks(Interceptor):
    """Notes, for the span of `run.fork`, the root span of the source."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002, the SDK's
        """Wraps the activities of one worker."""
        return _Linked(next)


class _Linked(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        result = await super().execute_activity(input)
        if isinstance(result, Forked):
            note(source=await root_of(activity.client(), result.point))
        return result


async def root_of(client: Client, point: ForkPoint) -> SpanContext | None:
    """The root span of a run, as its first execution handed it to its first activity; None for a run that was not
    traced, or whose history is gone."""
    try:
        async with asyncio.timeout(SECONDS):
            described = await client.get_workflow_handle(point.workflow_id).describe()
            first = described.raw_info.first_run_id or described.run_id
            if thread_name(point.workflow_id, first) != point.thread:
                return None  # the id was started again since
            handle = client.get_workflow_handle(point.workflow_id, run_id=first)
            async for event in handle.fetch_history_events(page_size=_FIRST_EVENTS):
                if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    fields = event.activity_task_scheduled_event_attributes.header.fields
                    return _context(fields[HEADER]) if HEADER in fields else None
    except (RPCError, TimeoutError, ValueError):  # insight may be lost, a fork may not
        return None
    return None


def _context(payload: Any) -> SpanContext | None:
    carrier = PayloadConverter.default.from_payloads([payload])[0]
    found = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
    return found if found.is_valid else None
