"""Ids of the spans of executions: made of run ids, so that a reset or a retry of a run stays in its trace.

What else is made in a workflow has ids of the workflow's own random source, which a reset seeds anew.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from temporalio.contrib.opentelemetry._id_generator import TemporalIdGenerator
from temporalio.workflow import Info

_NEXT: ContextVar[tuple[int, int] | None] = ContextVar("perdure_span_ids", default=None)


class Ids(TemporalIdGenerator):
    """Gives the ids that were set for the next span, else those of the SDK."""

    def __init__(self) -> None:
        super().__init__(RandomIdGenerator())

    def generate_trace_id(self) -> int:
        """The id of a trace that begins."""
        fixed = _NEXT.get()
        return super().generate_trace_id() if fixed is None else fixed[0]

    def generate_span_id(self) -> int:
        """The id of a span."""
        fixed = _NEXT.get()
        return super().generate_span_id() if fixed is None else fixed[1]


@contextmanager
def ids_of(info: Info) -> Iterator[None]:
    """Within it, spans have the ids of this execution."""
    token = _NEXT.set((_digest(info.first_execution_run_id, 16), _digest(info.original_execution_run_id, 8)))
    try:
        yield
    finally:
        _NEXT.reset(token)


def first_of(info: Info) -> NonRecordingSpan | None:
    """The span of the first execution of a run; None for that execution itself."""
    if info.original_execution_run_id == info.first_execution_run_id:
        return None
    trace, span = _digest(info.first_execution_run_id, 16), _digest(info.first_execution_run_id, 8)
    return NonRecordingSpan(SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))


def _digest(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big")
