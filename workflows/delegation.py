"""A parent's side: what its children are given, waiting for their ends, and stopping them when it ends itself.

A child is started by the tool `delegate`, through the ledger as any effect. Nothing here holds a worker while it lives:
the child says by a signal that it has ended, and an activity that the server retries looks for those that cannot say.
"""

import asyncio
import contextlib
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.catalog import CHILD_END, CHILD_WATCH
from workflows.child_records import ChildEnd, ChildRequest
from workflows.family import Family
from workflows.lineage import DELEGATE, Child, Terms
from workflows.records import Call
from workflows.reporting import Reporting
from workflows.undoing import evicted


async def until_closed(family: Family, child: Child, leaving: Callable[[], bool]) -> None:
    """Until the child has ended, or the wait is given up."""
    if family.has_ended(child) or leaving():
        return
    said = f"until {child.workflow_id} ends"[:100]
    watch = asyncio.create_task(CHILD_WATCH.run(ChildRequest(child=child), summary=said))
    watch.add_done_callback(lambda task: task.cancelled() or task.exception())  # how it ends is of no interest
    try:
        await workflow.wait_condition(lambda: watch.done() or leaving() or family.has_ended(child))
    finally:  # no await here: a run that is put out of the cache ends in this place
        watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


class Delegation(Reporting):
    """`leaving`: the calls of the turn are given up, by a rollover, a cancellation or a failure."""

    leaving: bool

    def terms_for(self, call: Call) -> tuple[Terms | None, str | None]:
        """The terms on which the call may start a child (None for any other call); or why it may not."""
        if call.wants is None:
            return None, None
        state, family = self.state, self.state.family
        calls = state.turn.calls if state.turn is not None else []
        to_come = [each.id for each in calls if each.wants is not None and each.id not in state.answers]
        shares = len({call.id, *to_come} - family.reserved.keys() | {call.id}) + 1
        grant, spent = family.reserve(call.id, call.wants, state.limits, state.used_now(), shares)
        if spent is not None:
            return None, f"nothing is left of this run's limit of {spent} for a sub-agent. None was started."
        info, opened = workflow.info(), state.opened
        terms = Terms(
            grant=grant,
            depth_left=opened.depth_left,
            run=info.first_execution_run_id,
            requester=opened.requester,
        )
        return terms, None

    async def end_of_child(self, call: str, edited_by: str | None = None) -> ChildEnd:
        """Waits for the end of the child that the call started, and books it."""
        child = self.state.family.children[call]
        self.publish()
        await self._closed(child)
        if self.leaving:
            raise asyncio.CancelledError
        return await self._collect(call, child, edited_by)

    async def _closed(self, child: Child) -> None:
        """Until the child has ended, or the turn is given up."""
        await until_closed(self.state.family, child, lambda: self.leaving)

    async def _collect(self, call: str, child: Child, edited_by: str | None = None) -> ChildEnd:
        report = self.state.family.reports.get(child.workflow_id)
        request = ChildRequest(
            child=child,
            thread=self.state.opened.thread,
            call=call,
            tool=DELEGATE,
            edited_by=edited_by,
            last=report.used if report is not None else {},
        )
        end = await self.mendable(lambda: CHILD_END.run(request, summary=f"end of {child.workflow_id}"[:100]))
        self.state.book_child(call, end)
        self.publish()
        return end

    async def stop_children(self) -> None:
        """When the run fails or is cancelled: asks the children to cancel that go with it, and waits until they have
        settled their effects."""
        if self.state.opening is None or evicted():
            return
        going = {call: child for call, child in self.state.family.children.items() if child.on_close == "cancel"}
        await asyncio.gather(*(self._stop_child(call, child) for call, child in going.items()))

    async def _stop_child(self, call: str, child: Child) -> None:
        with contextlib.suppress(FailureError):  # it has ended, or nobody knows it
            await workflow.get_external_workflow_handle(child.workflow_id).cancel()
        with contextlib.suppress(FailureError):
            await self._closed(child)
            await self._collect(call, child)
