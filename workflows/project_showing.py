"""What a project shows while it lives: Current Details, search attributes, and its log."""

from datetime import datetime
from typing import Any

from temporalio import workflow

from workflows.project_board import board
from workflows.project_records import Entry
from workflows.project_state import ProjectState
from workflows.receiving import Source
from workflows.showing import SINCE, STATUS, WAITING_ON


class ProjectShowing:
    """`project` is what is carried; `ended` its final status."""

    project: ProjectState
    ended: str | None
    shown: tuple[Any, ...]

    def shown_status(self) -> str:
        """The status of the project, or of its result."""
        return self.ended or self.project.status()

    def publish(self) -> None:
        """Current Details, and the search attributes where the namespace has them and they changed."""
        status, workflow_id = self.shown_status(), workflow.info().workflow_id
        workflow.set_current_details(board(self.project, workflow_id, status))
        opening = self.project.opening
        if opening is None or not opening.search_attributes:
            return
        shown = (status, self.project.waiting_on())
        if shown != self.shown:
            self.shown, waiting = shown, shown[1]
            workflow.upsert_search_attributes(
                [
                    STATUS.value_set(status),
                    WAITING_ON.value_set(waiting) if waiting else WAITING_ON.value_unset(),
                    SINCE.value_set(workflow.now()),
                ]
            )

    def note(self, what: str, by: str | None, source: Source, reason: str = "") -> None:
        """Writes one line of the log."""
        now: datetime = workflow.now()
        self.project.note(Entry(what=what, by=by, at=now.isoformat(), source=dict(source), reason=reason))
