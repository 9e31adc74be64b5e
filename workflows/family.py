"""The children of a run: who they are, what is reserved for them, what they say. Pure; part of the carried state."""

import math
from collections.abc import Mapping

from pydantic import BaseModel, Field

from workflows.child_records import Asked, ChildEnd, ChildReport
from workflows.lineage import Child, Limits
from workflows.requests import commands_below

KEPT_REPORTS = 256
"""How many children may have something said of them at once."""

STRANGER_BYTES = 16 * 1024
"""The longest report, as JSON, that is kept of a run that is no child, or none yet: anybody may send one."""


class Family(BaseModel):
    """`children`, `reserved`: by the id of the call that started it, until its end is booked. `reports`: the last one
    of each child, by workflow id. `spent`: what children that ended have used, by the names of the limits, tokens and
    cost apart, which are in the run's usage. `told`: what this run, as a child, last told its own parent. `strangers`:
    reports of runs that are not known as children: one that was just started may speak before its start is booked."""

    children: dict[str, Child] = Field(default_factory=dict)
    reserved: dict[str, Limits] = Field(default_factory=dict)
    reports: dict[str, ChildReport] = Field(default_factory=dict)
    spent: dict[str, float] = Field(default_factory=dict)
    told: list[str] = Field(default_factory=list)
    strangers: dict[str, ChildReport] = Field(default_factory=dict)

    def reserve(
        self, call: str, wanted: Limits, limits: Limits, used: Mapping[str, float], shares: int
    ) -> tuple[Limits, str | None]:
        """Reserves a slice of what is left and gives it; with the name of a limit of which nothing is left, if there is
        one. What was not asked for is an equal share: `shares` counts the calls that are still to get one, and one for
        the run itself. What was asked for is given as far as it is there."""
        self.reserved.pop(call, None)
        held = self.held()
        slices: dict[str, float] = {}
        for name, limit in limits.model_dump(exclude_none=True).items():
            left = limit - used[name] - held.get(name, 0)
            if left <= 0:
                return Limits(), name
            wish = getattr(wanted, name)
            slices[name] = _share(left, shares) if wish is None else min(wish, left)
        grant = wanted.model_copy(update=slices)
        self.reserved[call] = grant
        return grant, None

    def held(self) -> dict[str, float]:
        """What is reserved for children at this moment, by the names of the limits."""
        held: dict[str, float] = {}
        for slice_ in self.reserved.values():
            for name, amount in slice_.model_dump(exclude_none=True).items():
                held[name] = held.get(name, 0) + amount
        return held

    def adopt(self, call: str, child: Child) -> None:
        """Books a child that was started, or found: what it was started with is what is reserved for it."""
        self.children[call], self.reserved[call] = child, child.limits
        if child.workflow_id in self.strangers:
            self.reports[child.workflow_id] = self.strangers.pop(child.workflow_id)

    def book_end(self, call: str, end: ChildEnd) -> None:
        """Books the end of a child: the rest of what was reserved is free again."""
        child = self.children.pop(call, None)
        self.reserved.pop(call, None)
        if child is not None:
            self.reports.pop(child.workflow_id, None)
            for name in ("turns", "tool_calls", "seconds"):
                self.spent[name] = round(self.spent.get(name, 0) + end.used.get(name, 0), 6)

    def knows(self, workflow_id: str) -> bool:
        """Whether that run is a child at work."""
        return any(child.workflow_id == workflow_id for child in self.children.values())

    def file(self, report: ChildReport) -> None:
        """Books what a child says. The end of one that is not waited for is only the end of what it asks."""
        self._keep(self.reports, report, self.knows(report.child))

    def hold(self, report: ChildReport) -> None:
        """Keeps what a run says that is no child, or none yet: it is shown to nobody until it is one."""
        if len(report.model_dump_json()) <= STRANGER_BYTES:
            self._keep(self.strangers, report, False)

    def _keep(self, reports: dict[str, ChildReport], report: ChildReport, ended_too: bool) -> None:
        reports.pop(report.child, None)
        if ended_too or not report.ended:
            asked = [each.model_copy(update={"commands": commands_below(each)}) for each in report.pending]
            asked = [each for each in asked if each.commands]
            reports[report.child] = report.model_copy(update={"pending": asked})
        for name in list(reports)[:-KEPT_REPORTS]:
            del reports[name]

    def has_ended(self, child: Child) -> bool:
        """Whether the child says so."""
        report = self.reports.get(child.workflow_id)
        return report is not None and report.ended

    def pending(self) -> list[Asked]:
        """What is asked of people below this run, child by child."""
        return [asked for report in self.reports.values() for asked in report.pending]


def _share(left: float, shares: int) -> float:
    """An equal share, rounded down: of a whole number a whole number, but never nothing."""
    if isinstance(left, int):
        return max(1, left // shares)
    return math.floor(left / shares * 1e6) / 1e6 or left
