"""How a run ends that was cancelled or fails, and what a rollover waits for: what was said is not lost in silence."""

import contextlib

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows import catalog
from workflows.decisions import POLICY
from workflows.receiving import Source
from workflows.sessions import Sessions
from workflows.undoing import evicted, is_undoing

UNREAD: Source = {"via": "signal", "id": None}

EARLY_TAKEN = "early-decisions-before-a-rollover"
"""The patch since which a rollover waits for decisions that came before their request, too."""

ENDS_OPENLY = "failures-close-what-is-open"
"""The patch since which a run that was cancelled or fails takes no more messages, and writes down what it has not read
and not been told."""


SPENT_COUNTS = "what-no-answer-came-to-is-counted"
"""The patch since which a run that ends while the model is asked for something counts what that has cost until then."""


class Endings(Sessions):
    """Closes what is open. From then on only an undoing at the end is asked about."""

    async def handled(self) -> None:
        """Until what messages have begun is done: it is not carried over."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        if any(not task.done() for task in self.taking) and workflow.patched(EARLY_TAKEN):
            await workflow.wait_condition(lambda: all(task.done() for task in self.taking))

    def fail(self, error: BaseException) -> None:
        """From here on the run only ends: what was not read is recorded so, and what is asked is asked no more."""
        if self.failing or evicted() or not workflow.patched(ENDS_OPENLY):
            return
        self.rolling, self.state.paused = False, None
        self.closing = "cancelled" if is_cancelled_exception(error) else "failed"
        self.reject_unread(self.closing)
        self.close_requests(undoings=self.state.opening is None or self.state.opening.on_end != "compensate")
        self.publish()

    async def count_spent(self) -> None:
        """Books what the model was asked for and no turn or handoff came to: nothing else will count it."""
        asking = self.state.asking
        if asking is None or evicted() or not workflow.patched(SPENT_COUNTS):
            return
        self.state.asking = None
        with contextlib.suppress(ActivityError):  # a store that is down does not keep a run from ending
            spent = await catalog.SPENT.run(asking, summary="count what no answer came to")
            self.state.usage = self.state.usage.plus(spent)

    def close_requests(self, undoings: bool) -> None:
        """Closes what people were asked; not the reviews of undoings, unless it says so."""
        for request in self.state.requests.open() if self.failing else []:
            if undoings or not is_undoing(request.call):
                request.outcome, request.reason = "expired", f"the run ended ({self.closing})"
                self.log(request, "expired", None, POLICY, reason=request.reason)

    def reject_unread(self, status: str) -> None:
        """Writes down the messages that nobody will read any more."""
        for item in self.state.inbox:
            self.log(None, "rejected", item.by, UNREAD, reason=f"the run ended ({status}) before it was read")
        self.state.inbox = []
