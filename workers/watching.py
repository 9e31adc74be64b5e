"""Tells observers what a run does, from inside its worker: each thing once, and nothing while history is replayed.

An observer can never fail a run: what it raises is logged, once for each kind.
"""

import logging
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workers.endings import hold
from workers.steps import Ended, Event, Observer, Resumed, Step, Waited
from workflows.requests import Request

_LOG = logging.getLogger(__name__)
RUNS = logging.getLogger("perdure.runs")
"""What runs do, one line each, with the ids as attributes of the record."""


def log_event(event: Event) -> None:
    """Observes by a line of the log."""
    ids = event.ids() if isinstance(event, Step) else {"workflow_id": event.workflow_id, "run_id": event.run_id}
    RUNS.log(logging.DEBUG if isinstance(event, Resumed) else logging.INFO, event.line(), extra={"ids": ids})


class Observers:
    """Those who are told."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._failed: set[str] = set()

    def tell(self, event: Event) -> None:
        """Tells all; never raises."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - insight may be lost, a run may not
                kind = f"{getattr(observer, '__qualname__', observer)}: {type(error).__name__}"
                if kind not in self._failed:
                    self._failed.add(kind)
                    _LOG.exception("an observer failed (said once): %s", kind)


class Watch(Interceptor):
    """Watches the workflows of a worker."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """The class, bound to the observers."""
        observers = self._observers

        class Bound(_Inbound):
            told = observers

        return Bound


class Decided:
    """The requests of one execution that were decided, each told once."""

    def __init__(self) -> None:
        self._seen: set[str] | None = None

    def fresh(self) -> list[Waited]:
        """Those that were decided since the last look. At the first look, those of an earlier execution are passed."""
        state = getattr(workflow.instance(), "state", None)
        if state is None:
            return []
        closed = {code: request for code, request in state.requests.by_code.items() if request.outcome is not None}
        if self._seen is None:
            began = workflow.info().start_time
            self._seen = {
                entry.code for entry in state.requests.log if entry.code is not None and entry.at < began
            } & closed.keys()
        new = [code for code in closed if code not in self._seen]
        self._seen.update(new)
        return [_waited(closed[code], state.requests.log) for code in new]


def _waited(request: Request, log: Sequence[Any]) -> Waited:
    info = workflow.info()
    at = [entry.at for entry in log if entry.code == request.code and entry.decision != "rejected"]
    return Waited(
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        code=request.code,
        kind=request.kind,
        outcome=request.outcome or "",
        asked=request.asked_at,
        decided=at[-1] if at else workflow.now(),
        tool=request.call.tool if request.call else None,
        by=request.by,
    )


def ended_event(status: str) -> Ended:
    """How the execution that is running ends."""
    info, state = workflow.info(), getattr(workflow.instance(), "state", None)
    opening = state.opening if state else None
    return Ended(
        workflow_id=info.workflow_id,
        run_id=info.run_id,
        status=status,
        began=info.start_time,
        ended=workflow.now(),
        bundle=f"{opening.bundle.name}@{opening.bundle.version}" if opening else "",
        turns=state.used.turns if state else 0,
        input_tokens=state.usage.input_tokens if state else 0,
        output_tokens=state.usage.output_tokens if state else 0,
        cost_usd=state.usage.cost_usd if state else 0.0,
        versions=workflow.instance().versions_now() if opening else {},
    )


def end_of(error: BaseException) -> str | None:
    """How an execution ends that raises this; None where it does not end: its task failed, or it was only evicted."""
    if isinstance(error, workflow.ContinueAsNewError):
        return "rolled_over"
    if isinstance(error, Exception) and is_cancelled_exception(error):
        return "cancelled"
    return "failed" if isinstance(error, Exception) and workflow.is_failure_exception(error) else None


class _Inbound(WorkflowInboundInterceptor):
    told: Observers

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.decided = Decided()
        super().init(_Outbound(outbound, self))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002, the SDK's word
        if workflow.unsafe.is_replaying_history_events():
            info = workflow.info()
            self.told.tell(Resumed(info.workflow_id, info.run_id))
        try:
            result = await super().execute_workflow(input)
        except BaseException as error:
            if (status := end_of(error)) is not None:
                self.flush(ended_event(status))
            raise
        self.flush(ended_event(str(result.get("status")) if isinstance(result, dict) else "completed"))
        return result

    def flush(self, ended: Ended | None = None) -> None:
        """Tells what was decided since the last time, and how the execution ended once that is taken; nothing of it
        again in a replay."""
        found: list[Event] = [*self.decided.fresh(), *([ended] if ended else [])]
        if workflow.unsafe.is_replaying_history_events():
            return
        if ended is None:
            self._tell(found)
        else:
            hold(ended.run_id, lambda: self._tell(found))

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            self.told.tell(event)


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, inbound: _Inbound) -> None:  # noqa: A002
        super().__init__(next)
        self._inbound = inbound

    def start_activity(self, input: StartActivityInput) -> Any:  # noqa: A002
        self._inbound.flush()
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> Any:  # noqa: A002
        self._inbound.flush()
        return super().start_local_activity(input)
