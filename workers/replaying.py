"""Recorded histories against today's code, with no model, no tool and no effect: would this code go on with the run?

What a run asked of the server, in its order, is in its history. Code that asks for something else cannot continue it.
"""

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer, WorkflowRunner
from temporalio.worker._workflow_instance import WorkflowInstance, WorkflowInstanceDetails

from workers.worker import WORKFLOWS, PlainRunner


@dataclass(frozen=True)
class Replayed:
    """What came of one history. `fault`: why the code of today cannot continue it; None where it can.

    `patches`: the patches that it came by, and whether it takes the new way (see docs/decisions).
    """

    workflow_id: str
    run_id: str
    events: int
    fault: str | None
    patches: dict[str, bool] = field(default_factory=dict)


async def replay(
    histories: AsyncIterator[WorkflowHistory], converter: DataConverter, runner: WorkflowRunner | None = None
) -> AsyncIterator[Replayed]:
    """Replays each history. `converter`: a worker's, over the store that holds what was too large for Temporal."""
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=converter,
        workflow_runner=runner or PlainRunner(),
        namespace="replay",
        runtime=_silent(),
        debug_mode=True,  # a long task is no stuck one: the replayer hangs where its two seconds for one are over
    )
    async with replayer.workflow_replay_iterator(histories) as results:
        async for result in results:
            history, failure = result.history, result.replay_failure
            yield Replayed(
                workflow_id=history.workflow_id,
                run_id=history.run_id,
                events=len(history.events),
                fault=None if failure is None else said(failure),
            )


async def replay_with_patches(
    histories: AsyncIterator[WorkflowHistory], converter: DataConverter
) -> AsyncIterator[Replayed]:
    """The same, and which way each history takes at each `workflow.patched` that it comes by."""
    async for history in histories:
        recorder = _Recorder()
        async for one in replay(_only(history), converter, recorder):
            yield replace(one, patches=recorder.taken)


def said(failure: Exception) -> str:
    """Why a replay failed, in one line. The SDK wraps its words in a dump of a Rust record."""
    wrapped = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(failure))
    lines = (wrapped[1] if wrapped and wrapped[1] else str(failure)).splitlines() or [type(failure).__name__]
    return lines[0][:1000]


async def histories_of(client: Client, runs: Iterable[tuple[str, str]]) -> AsyncIterator[WorkflowHistory]:
    """The histories of executions (workflow id, run id); one that is gone meanwhile is passed over."""
    for workflow_id, run_id in runs:
        try:
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            continue
        if history.events:
            yield history


async def _only(history: WorkflowHistory) -> AsyncIterator[WorkflowHistory]:
    yield history


@cache
def _silent() -> Runtime:
    """A runtime without a log: the SDK's own goes to the standard output, into the midst of what a command prints."""
    return Runtime(telemetry=TelemetryConfig(logging=None))


class _Recorder(PlainRunner):
    """Remembers what `workflow.patched` answered. The SDK has no interceptor for it, so the instance's own method is
    wrapped."""

    def __init__(self) -> None:
        self.taken: dict[str, bool] = {}

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance that tells."""
        instance: Any = super().create_instance(det)
        asked = instance.workflow_patch

        def workflow_patch(id: str, **options: Any) -> bool:  # noqa: A002, the SDK's word
            taken: bool = asked(id, **options)
            self.taken[id] = taken
            return taken

        instance.workflow_patch = workflow_patch
        made: WorkflowInstance = instance
        return made
