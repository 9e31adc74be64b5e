"""Turns and session boundaries: when the context is nearly full, or somebody says so, a new session begins.

It begins between two turns, from what `session.handoff` made. The checkpoints go on as before: the first one of a
session says that the context begins with it.
"""

from temporalio import workflow

from workflows import catalog
from workflows.display import pending_view
from workflows.records import Problem, Turn, TurnRequest
from workflows.session_records import Handoff, HandoffRequest
from workflows.side_records import SpentRequest
from workflows.state import PARKS
from workflows.tool_calls import ToolCalls

FULL = "ContextFull"

COUNTED_HANDOFFS = "limits-are-looked-at-after-a-handoff"
"""The patch since which a run looks at its limits, at a pause and at its history between a handoff and the turn that
follows it."""


class Sessions(ToolCalls):
    """Takes turns, and hands over between sessions."""

    async def take_turn(self, workflow_id: str) -> Turn | None:
        """One turn; None after a handoff that was due, and when the context turned out to be full."""
        state = self.state
        state.read_inbox()
        if state.handoff_by is not None:
            await self._hand_off(workflow_id)
            if workflow.patched(COUNTED_HANDOFFS):
                return None
            state.read_inbox()
        turn, asked = await self.unpaused(self._ask), state.files
        if turn.kind == "full":
            await self._context_is_full(turn)
            return None
        state.book_turn(turn)
        state.book_files(asked, turn.files)
        self.log_denied_calls(turn.calls)
        self.publish()
        return turn

    async def _ask(self) -> Turn:
        state, number = self.state, self.state.at.sequence + 1
        request = TurnRequest(
            thread=state.opened.thread,
            branch=state.branch,
            turn=number,
            head=state.at,
            base=state.base,
            new=state.new,
            bundle=state.opened.bundle.digest,
            numbers=state.numbers,
            repeat=state.opened.repeat,
            ancestry=state.opened.ancestry,
            abandoned=list(state.abandoned),
            denied=state.requests.denied_digests,
            branched=state.branched,
            session=state.session,
            files=state.files,
            quirks=state.quirks,
            calls_left=state.calls_left(),
            depth_left=state.opened.depth_left,
        )
        state.asking = SpentRequest(thread=request.thread, branch=request.branch, turn=number)
        self.in_turn = True
        try:
            turn = await catalog.MODEL_TURN.run(request, summary=f"model turn {number}")
        finally:
            self.in_turn = False
        state.asking = None
        return turn

    async def _context_is_full(self, turn: Turn) -> None:
        """Hands over before the next try, or, where the bundle has switched that off, waits for a person's word."""
        if turn.boundary != "off":
            self.state.handoff_by = "system"
            return
        self.state.problem = Problem(type=FULL, message=turn.text, remedy=PARKS[FULL][1])
        self.retry_now = False
        try:
            await self.wait(lambda: self.retry_now or self.state.handoff_by is not None, "handoff")
        finally:
            self.state.problem, self.retry_now = None, False

    async def _hand_off(self, workflow_id: str) -> None:
        async def hand() -> Handoff:
            request = self._handoff_request(workflow_id)  # anew for each try: an upgrade may have come, or be gone
            self.upgrading = request.upgrade is not None
            asking = SpentRequest(thread=request.thread, branch=request.branch, session=request.session)
            self.state.asking = asking
            try:
                made = await catalog.HANDOFF.run(request, summary=f"hand session {self.state.session} over")
            finally:
                self.upgrading = False
            self.state.asking = None
            return made

        handed = await self.unpaused(hand)
        self.state.book_handoff(handed)
        if handed.upgraded is not None:
            self.shown = ()  # the bundle is one of the search attributes
        self.publish()

    def _handoff_request(self, workflow_id: str) -> HandoffRequest:
        state = self.state
        opening = None if state.upgrade is None else state.upgrade.opening
        return HandoffRequest(
            thread=state.opened.thread,
            branch=state.branch,
            session=state.session,
            head=state.at,
            base=state.base,
            new=state.new,
            bundle=state.opened.bundle,
            files=state.files,
            turns=state.used.turns,
            pending=[pending_view(request, workflow_id, state) for request in state.requests.open()],
            limits=state.limits.model_dump(exclude_none=True),
            used=state.used_now(),
            by=state.handoff_by or "",
            quirks=state.quirks,
            upgrade=None if opening is None else opening.bundle,
            opening=opening,
            takes_opening=True,
        )
