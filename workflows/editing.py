"""The message `edit`: a paused or parked run goes on from another context, on a branch of its own.

What is running comes to its end first. The edits are worked out by an activity, and taken only if the run still stands
where it stood then.
"""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows import messages as m
from workflows.catalog import EDIT
from workflows.decisions import Decisions
from workflows.fork_records import Edited, EditRequest
from workflows.forks import answers_so_far, book_edit, mint
from workflows.receiving import Source
from workflows.requests import Request

EDITS_BY_APPROVERS = "edits-by-approvers"
"""The patch since which only who may decide on a call may give it an answer by an edit."""


class Editing(Decisions):
    """`in_turn`: a model turn is under way; `busy` counts the tools that run; `upgrading`: a session is being handed
    over to another version of the bundle; `closing`: the status with which the run is about to end."""

    in_turn: bool = False
    upgrading: bool = False
    busy: int
    retry_now: bool
    closing: str | None

    @property
    def failing(self) -> bool:
        """Whether the run was cancelled or fails, and only ends any more."""
        return self.closing in ("cancelled", "failed")

    async def edit(self, message: m.Edit, source: Source) -> str:
        """Changes the context. Raises MessageError, with nothing changed."""
        self.check_edit(message)
        await workflow.wait_condition(lambda: self.ended is not None or not (self.in_turn or self.busy))
        self.check_edit(message)
        asked = self._edit_request(message)
        try:
            edited = await EDIT.run(asked, summary=f"edit the context, by {message.by}"[:100])
        except ActivityError:
            raise m.MessageError("edit: the context could not be read just now; send it again") from None
        if edited.refused is not None:
            raise m.MessageError(f"edit: {edited.refused}; nothing was changed")
        self.check_edit(message)
        if self.in_turn or self.busy or self._edit_request(message) != asked:
            raise m.MessageError("edit: the run went on meanwhile; nothing was changed. Look, and send it again")
        self._settle_by(message, edited, source)
        branch = mint()
        book_edit(self.state, edited, branch)
        if self.state.problem is not None and self.state.problem.type == "ContextFull":
            self.retry_now = True
        said = f"{len(message.edits)} edit(s) after checkpoint {self.state.at.sequence}, on branch {branch}"
        self.log(None, "edit", message.by, source, reason=said)
        return said

    def check_edit(self, message: m.Edit) -> None:
        """Raises MessageError for a run that cannot be edited where it stands."""
        state, workflow_id = self.state, workflow.info().workflow_id
        if self.ended is not None:
            raise m.MessageError(f"the run has ended ({self.ended}); nothing was changed. A fork can be edited")
        if self.failing:
            raise m.MessageError("edit: the run is ending; nothing was changed. A fork can be edited")
        if state.opening is None or state.head is None:
            raise m.MessageError("edit: the run is still being opened; send it again in a moment")
        if state.paused is None and state.problem is None:
            pause = m.command(workflow_id, "pause", m.EXAMPLES["pause"])
            raise m.MessageError(f"edit: the run is neither paused nor parked. Send first: {pause}")
        if state.handoff_by is not None:
            raise m.MessageError("edit: a new session is about to begin; send it when that has begun")
        if message.checkpoint is not None and message.checkpoint != state.head.sequence:
            at = state.head.sequence
            raise m.MessageError(f"edit: it is meant for checkpoint {message.checkpoint}, and the run is at {at}")

    def _edit_request(self, message: m.Edit) -> EditRequest:
        state = self.state
        calls = state.turn.calls if state.turn else []
        return EditRequest(
            thread=state.opened.thread,
            head=state.at,
            base=state.base,
            new=answers_so_far(state),
            unsettled=[call.id for call in calls if call.id not in state.answers],
            turn=state.turn is not None,
            edits=[edit.model_dump(mode="json") for edit in message.edits],
            by=message.by,
        )

    def _check_editor(self, request: Request, message: m.Edit) -> None:
        """An answer in place of a call that waits for approval is a decision on it."""
        try:
            if request.kind == "approval":
                self.check_decider(request, message)
        except m.MessageError:
            if workflow.patched(EDITS_BY_APPROVERS):
                raise

    def _settle_by(self, message: m.Edit, edited: Edited, source: Source) -> None:
        """Answers that the edits gave in place of calls that people are asked about."""
        found: list[tuple[Request, int]] = []
        for index, item in enumerate(edited.new):
            if item.call in self.state.answers:
                continue
            open_ones = [each for each in self.state.requests.open() if each.call and each.call.id == item.call]
            if not open_ones or open_ones[-1].kind not in ("approval", "question"):
                raise m.MessageError(f"edit: call {item.call} is about to run, and has no answer to change")
            if open_ones[-1].judging is not None:
                raise m.MessageError(f"edit: what {open_ones[-1].judging} sent for call {item.call} is being checked")
            self._check_editor(open_ones[-1], message)
            found.append((open_ones[-1], index))
        for request, index in found:
            request.edited = edited.new[index].ref
            self.decide(request, message, "answered", source, "by an edit")
