"""A child's side: it tells its parent what it asks of people, and that it has ended; it goes when that is gone."""

import asyncio
import contextlib
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError

from workflows.catalog import PARENT_WATCH
from workflows.child_records import REPORTED, Asked, ChildReport
from workflows.display import below_view, pending_view
from workflows.family import Family
from workflows.fitting import fitting
from workflows.messages import decode_json, explain
from workflows.receiving import by_signal
from workflows.records import Workspace
from workflows.requests import shown
from workflows.undoing import Undoing, evicted

CHILD = "child"
"""The signal by which children report."""


CHILDREN_ONLY = "reports-of-children-only"
"""The patch since which a report is shown, and told further up, only if its sender is a child that this run knows."""

REPORT_BYTES = 2 * 1024 * 1024
"""The longest report."""


def hear(family: Family, value: RawValue | None) -> None:
    """Books a report. Raises ValueError for what is none."""
    if isinstance(value, RawValue) and len(value.payload.data) > REPORT_BYTES:
        raise ValueError(f"it is longer than {REPORT_BYTES} bytes")
    report = ChildReport.model_validate(decode_json(value))
    if not family.knows(report.child) and workflow.patched(CHILDREN_ONLY):
        family.hold(report)
    else:
        family.file(report)


class Reporting(Undoing):
    """`beside`: what goes on beside the loop for the parent's sake."""

    beside: list["asyncio.Task[None]"]

    def begin_reports(self) -> None:
        """Begins to tell the parent, where there is one, and to look whether it is still there."""
        parent = self.state.opened.parent
        if parent is None:
            return
        self.beside = [asyncio.create_task(self._report())]
        if parent.on_close == "cancel":
            self.beside.append(asyncio.create_task(self._watch_parent()))

    def workspace_left(self) -> dict[str, Any]:
        """The files at the end, for whoever goes on from them."""
        state = self.state
        return Workspace(thread=state.opened.thread, files=state.files).model_dump(mode="json")

    async def report_end(self) -> None:
        """The last report. A parent that is gone is told nothing."""
        if self.state.opening is None or self.state.opening.parent is None or evicted():
            return
        with contextlib.suppress(FailureError):
            await self._tell_parent(ended=True)

    async def _report(self) -> None:
        """Whenever what is asked here or below has changed. Ends with the parent."""
        family = self.state.family
        with contextlib.suppress(FailureError):
            while True:
                await workflow.wait_condition(lambda: self._asks() != family.told)
                family.told = self._asks()
                await self._tell_parent()

    def _asks(self) -> list[str]:
        own = [request.code for request in self.state.requests.open()]
        return own + [f"{asked.owner} {asked.code}" for asked in self.state.family.pending()]

    async def _tell_parent(self, ended: bool = False) -> None:
        info, parent = workflow.info(), self.state.opened.parent
        assert parent is not None
        pending = [] if ended else fitting(self._views)
        report = ChildReport(
            child=info.workflow_id,
            pending=[Asked.model_validate(view) for view in pending],
            used=self.state.used_now(),
            ended=ended,
        )
        handle = workflow.get_external_workflow_handle(parent.workflow_id)
        await handle.signal(CHILD, report.model_dump(mode="json", exclude_defaults=True))

    def _views(self, longest: int | None) -> list[dict[str, Any]]:
        workflow_id, state = workflow.info().workflow_id, self.state
        own = [pending_view(request, workflow_id, state, longest) for request in state.requests.open()]
        below = [below_view(asked, longest) for asked in state.family.pending()]
        return [*({**view, "arguments": shown(view["arguments"])} for view in own), *below][:REPORTED]

    async def _watch_parent(self) -> None:
        """The activity asks for this run's cancellation when the parent has ended without it."""
        parent = self.state.opened.parent
        assert parent is not None
        with contextlib.suppress(FailureError):
            await PARENT_WATCH.run(parent, summary=f"until {parent.workflow_id} ends"[:100])

    @workflow.signal(name=CHILD, description="Sub-agents report by it what they ask of people. Not for people")
    async def on_report(self, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        """Books what a child says."""
        source = by_signal()
        try:
            if rest:
                raise ValueError("one JSON object is wanted")
            hear(self.state.family, value)
            self.publish()
        except ValidationError as error:
            self.reject(f"{CHILD}: {explain(error)}", source)
        except ValueError as error:
            self.reject(f"{CHILD}: {error}", source)
        self.look_at_history()
