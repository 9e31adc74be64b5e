"""Traces: one for each run, over all its workers, rollovers and children, by the SDK's own plugin for OpenTelemetry.

The plugin carries the trace from workflow to activity and on to what continues the run. This module makes the spans:

    invoke_agent      an execution of a run, made in the workflow with ids that a replay makes again
    chat              an attempt at a model turn
    execute_tool      an attempt at a tool call
    wait              a request to people, from the question to the decision

The attempts are siblings under the execution, made when they have ended: a worker that dies leaves no half of one, and
no span ever misses its parent. A reset stays in its trace (see `tracing_ids`). An execution's span is exported by the
worker that ends it. A fork has a trace of its own, whose span `run.fork` is linked to the root of the source. Names and
attributes are those of the GenAI semantic conventions; what was said is left out unless it is asked for.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from temporalio import workflow
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workers.endings import hold
from workers.steps import Ended, Event, Step, Waited
from workers.tracing_ids import first_of, ids_of
from workers.watching import Decided, end_of, ended_event
from workflows.catalog import HANDOFF, MODEL_TURN, TOOL_READ, TOOL_RUN
from workflows.records import ToolAnswer, ToolRequest, Turn, Usage

TRACER = "perdure"
PROVIDER = "openai"
"""The flavour of the requests: whoever answers them speaks OpenAI's protocol."""
Closing = tuple[Span, int]
"""A span, and the Unix nanoseconds at which it ends."""


class StepSpans:
    """Observes activities. `content`: what was said is written too, as previews."""

    def __init__(self, content: bool = False) -> None:
        self._content = content
        self._tracer = trace.get_tracer(TRACER)

    def __call__(self, event: Event) -> None:
        """Makes the span of an attempt that has ended; its parent is the execution that asked for it."""
        if not isinstance(event, Step) or not trace.get_current_span().get_span_context().is_valid:
            return
        kind = SpanKind.CLIENT if event.activity in (MODEL_TURN.name, HANDOFF.name) else SpanKind.INTERNAL
        source = event.notes.get("source")
        span = self._tracer.start_span(
            name_of(event),
            kind=kind,
            attributes=attributes_of(event, self._content),
            links=[] if source is None else [Link(source, {"perdure.link": "forked_from"})],
            start_time=event.began,
        )
        if event.error is not None:
            span.set_status(Status(StatusCode.ERROR, event.error_type))
        span.end(event.ended)


def name_of(step: Step) -> str:
    """The span's name by the conventions."""
    if step.activity == MODEL_TURN.name:
        model = step.model or (step.result.model if isinstance(step.result, Turn) else "")
        return f"chat {model}" if model else "chat"
    return f"execute_tool {step.tool}" if step.tool else step.activity


def attributes_of(step: Step, content: bool) -> dict[str, Any]:
    """The span's attributes by the conventions, and `perdure.…` for what they have no name for."""
    found: dict[str, Any] = {
        "gen_ai.conversation.id": step.workflow_id,
        "perdure.attempt": step.attempt,
        "perdure.recorded": step.recorded,
        **versions_of(step),
    }
    if step.turn is not None:
        found["perdure.turn"] = step.turn
    if step.error_type is not None:
        found["error.type"] = step.error_type
    if step.activity in (MODEL_TURN.name, HANDOFF.name):
        found |= {"gen_ai.operation.name": "chat", "gen_ai.provider.name": PROVIDER, **_used(step.usage)}
        if step.model:
            found["gen_ai.request.model"] = step.model
        if isinstance(step.result, Turn):
            found |= _chat(step.result, content)
    elif step.activity in (TOOL_RUN.name, TOOL_READ.name) and isinstance(step.request, ToolRequest):
        found |= _tool(step.request, step.result, content)
    return found


def versions_of(what: Step | Ended) -> dict[str, str]:
    """The versions and digests that a checkpoint and the result record too, as attributes."""
    return {f"perdure.version.{name}": version for name, version in what.versions.items() if version}


def _used(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "perdure.cost_usd": usage.cost_usd,
    }


def _chat(turn: Turn, content: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"gen_ai.response.model": turn.model, "perdure.kind": turn.kind}
    if content:
        found["gen_ai.output.messages"] = turn.output or turn.text
    return found


def _tool(request: ToolRequest, answer: Any, content: bool) -> dict[str, Any]:
    call = request.call
    found: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "perdure.effect": call.effect,
    }
    if call.operation_id:
        found["perdure.operation_id"] = call.operation_id
    if isinstance(answer, ToolAnswer):
        found["perdure.status"] = answer.status
        if answer.effect is not None:
            found["perdure.effect.status"] = answer.effect.status
    if content:
        found["gen_ai.tool.call.arguments"] = str(call.arguments_preview or call.arguments or "")
        if isinstance(answer, ToolAnswer) and answer.answer is not None:
            found["gen_ai.tool.call.result"] = answer.answer.preview
    return found


class RunSpans(Interceptor):
    """Makes the spans of runs, in their workflows. Needs the SDK's plugin on the client."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """The class that each execution gets."""
        return _Traced


@contextmanager
def _inside(context: otel.Context | None) -> Iterator[None]:
    """Makes a context the current one. An evicted run is closed wherever the collector of garbage runs: then it is
    not the current one, and there is nothing to undo."""
    if context is None:
        yield
        return
    token = otel.attach(context)
    try:
        yield
    finally:
        with suppress(ValueError):
            token.var.reset(token)


class _Traced(WorkflowInboundInterceptor):
    """`here`: the context of this execution's span; `root`: that of the first execution of the chain."""

    here: otel.Context | None = None
    root: otel.Context | None = None

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.decided = Decided()
        super().init(_TracedOut(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002, the SDK's word
        info, above = workflow.info(), otel.get_current()
        if not trace.get_current_span(above).get_span_context().is_valid and (first := first_of(info)) is not None:
            above = trace.set_span_in_context(first, above)  # a retry, or the worker before it did not trace
        with ids_of(info):
            span = trace.get_tracer(TRACER).start_span(
                "invoke_agent",
                context=above,
                attributes={
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.provider.name": PROVIDER,
                    "gen_ai.conversation.id": info.workflow_id,
                    "perdure.run_id": info.run_id,
                },
                start_time=int(info.start_time.timestamp() * 1e9),
            )
        self.here = trace.set_span_in_context(span, above)
        self.root = above if info.continued_run_id and trace.get_current_span(above) is not trace.INVALID_SPAN else None
        with _inside(self.here):
            try:
                result = await super().execute_workflow(input)
            except BaseException as error:
                if (status := end_of(error)) is not None:
                    self._end(span, ended_event(status))
                raise
            self._end(span, ended_event(str(result.get("status")) if isinstance(result, dict) else "completed"))
        return result

    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002
        with _inside(self.here):
            await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:  # noqa: A002
        with _inside(self.here):
            return await super().handle_update_handler(input)

    def waits(self) -> None:
        """The spans of what was decided since the last time. In a replay they are made and not exported, so that the
        ids of what follows are the same."""
        for span, end in self._waits():
            span.end(end)

    def _waits(self) -> list[Closing]:
        return [_wait_span(waited, self.here) for waited in self.decided.fresh()]

    def _end(self, span: Span, ended: Ended) -> None:
        spans = self._waits()
        name, _, version = ended.bundle.partition("@")
        if name:
            span.update_name(f"invoke_agent {name}")
            span.set_attributes({"gen_ai.agent.name": name, "gen_ai.agent.version": version})
        span.set_attributes(versions_of(ended))
        span.set_attributes({"perdure.status": ended.status, "perdure.turns": ended.turns})
        if ended.status in ("failed", "cancelled"):
            span.set_status(Status(StatusCode.ERROR, ended.status))
        if ended.status != "rolled_over":
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": ended.input_tokens,
                    "gen_ai.usage.output_tokens": ended.output_tokens,
                    "perdure.cost_usd": ended.cost_usd,
                }
            )
        if not workflow.unsafe.is_replaying_history_events():
            spans.append((span, int(ended.ended.timestamp() * 1e9)))
            hold(ended.run_id, lambda: _close(spans))


def _close(spans: Sequence[Closing]) -> None:
    for span, end in spans:
        span.end(end)


def _wait_span(waited: Waited, context: otel.Context | None) -> Closing:
    attributes = {"perdure.code": waited.code, "perdure.kind": waited.kind, "perdure.outcome": waited.outcome}
    if waited.tool:
        attributes["gen_ai.tool.name"] = waited.tool
    span = trace.get_tracer(TRACER).start_span(
        f"wait {waited.kind}",
        context=context,
        attributes=attributes,
        start_time=int(waited.asked.timestamp() * 1e9),
    )
    return span, int(waited.decided.timestamp() * 1e9)


class _TracedOut(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Traced) -> None:  # noqa: A002
        super().__init__(next)
        self._inbound = inbound

    def start_activity(self, input: Any) -> Any:  # noqa: A002
        self._inbound.waits()
        return super().start_activity(input)

    def start_local_activity(self, input: Any) -> Any:  # noqa: A002
        self._inbound.waits()
        return super().start_local_activity(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002
        """The next execution is a child of the first one, as this one is."""
        with _inside(self._inbound.root):
            super().continue_as_new(input)
