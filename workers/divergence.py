"""Where a history and today's code part, in the run's own terms: the turn, the call, the approval.

The SDK says what does not fit, often without where. So the workflow task is found by halves: a history that is cut off
after a task has begun replays what the tasks before it asked for, and no more.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from workers.replaying import Replayed, replay
from workflows.records import ToolRequest, TurnRequest

_EVENT = re.compile(r"HistoryEvent\(id: (\d+)")
_RECORDED = re.compile(r"of (?:scheduled |initiated )?event '([^']*)'")
_CODE = re.compile(r"\b(approval|question|review|budget) ([2-9A-HJKMNP-Z]{4,})\b")
_COMMANDS = (
    "activity_task_scheduled",
    "timer_started",
    "timer_canceled",
    "activity_task_cancel_requested",
    "marker_recorded",
    "upsert_workflow_search_attributes",
    "start_child_workflow_execution_initiated",
    "signal_external_workflow_execution_initiated",
    "workflow_execution_completed",
    "workflow_execution_failed",
    "workflow_execution_canceled",
    "workflow_execution_continued_as_new",
)


@dataclass(frozen=True)
class Place:
    """An event of a history. `turn`, `call` and `request` (an approval's or a question's code) are where the run was;
    `recorded` is what it did there."""

    event: int
    recorded: str
    turn: int | None = None
    call: str | None = None
    request: str | None = None

    def words(self) -> str:
        """For people."""
        where = [f"turn {self.turn}" if self.turn is not None else "before the first turn"]
        where += [f"call {self.call}"] if self.call else []
        where += [self.request] if self.request else []
        return f"event {self.event}, {', '.join(where)}: the run recorded {self.recorded}"


async def diverging(history: WorkflowHistory, found: Replayed, converter: DataConverter) -> Place | None:
    """The first event that today's code does not lead to; None where the history replays."""
    if found.fault is None:
        return None
    task = await _task(history, converter)
    batch = _batch(history.events, task)
    index = _named(history.events, batch, found.fault)
    return await _place(history, index, converter)


async def _task(history: WorkflowHistory, converter: DataConverter) -> int:
    """The index of the start of the first workflow task that does not replay."""
    starts = [i for i, event in enumerate(history.events) if _kind(event) == "workflow_task_started"]
    low, high = 0, len(starts)  # a history that ends with start `low` replays; one with `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        cut = WorkflowHistory(history.workflow_id, history.events[: starts[middle] + 1])
        low, high = (low, middle) if await _fails(cut, converter) else (middle, high)
    return starts[low] if starts else 0


async def _fails(history: WorkflowHistory, converter: DataConverter) -> bool:
    async def only() -> AsyncIterator[WorkflowHistory]:
        yield history

    return any([one.fault is not None async for one in replay(only(), converter)])


def _batch(events: Sequence[HistoryEvent], start: int) -> list[int]:
    """The indices of the commands that the task which begins at `start` led to."""
    found: list[int] = []
    for index in range(start + 1, len(events)):
        kind = _kind(events[index])
        if kind == "workflow_task_started":
            break
        if kind in _COMMANDS:
            found.append(index)
    return found


def _named(events: Sequence[HistoryEvent], batch: list[int], fault: str) -> int:
    """The event that the SDK names by number or by type, else the first command of the task."""
    if (match := _EVENT.search(fault)) and int(match[1]) <= len(events):
        return int(match[1]) - 1
    if match := _RECORDED.search(fault):
        for index in batch:
            attributes = getattr(events[index], f"{_kind(events[index])}_event_attributes")
            if match[1] in (getattr(getattr(attributes, "activity_type", None), "name", None), _id_of(attributes)):
                return index
    return batch[0] if batch else len(events) - 1


def _id_of(attributes: Any) -> str:
    return str(getattr(attributes, "activity_id", "") or getattr(attributes, "timer_id", ""))


async def _place(history: WorkflowHistory, index: int, converter: DataConverter) -> Place:
    place = Place(event=0, recorded="")
    for event in history.events[: index + 1]:
        kind = _kind(event)
        if kind == "activity_task_scheduled":
            place = await _moved(place, event, converter)
        if (match := _CODE.search(_summary(event))) and kind in ("timer_started", "activity_task_scheduled"):
            place = replace(place, request=f"{match[1]} {match[2]}")
    last = history.events[index]
    return replace(place, event=last.event_id, recorded=_recorded(last))


async def _moved(place: Place, event: HistoryEvent, converter: DataConverter) -> Place:
    """Where the run is once it has asked for this activity."""
    asked = event.activity_task_scheduled_event_attributes
    kinds: dict[str, type[Any]] = {"model.turn": TurnRequest, "tool.run": ToolRequest, "effect.doubt": ToolRequest}
    wanted = kinds.get(asked.activity_type.name)
    if wanted is None or not asked.input.payloads:
        return place
    try:
        [request] = await converter.decode(asked.input.payloads[:1], [wanted])
    except Exception:  # noqa: BLE001 - an input that cannot be read is shown by its activity alone
        return place
    if isinstance(request, TurnRequest):
        return replace(place, turn=request.turn, call=None, request=None)
    return replace(place, turn=request.head.sequence, call=request.call.id)


def _recorded(event: HistoryEvent) -> str:
    kind = _kind(event)
    attributes = getattr(event, f"{kind}_event_attributes", None)
    name = getattr(getattr(attributes, "activity_type", None), "name", "") or getattr(attributes, "marker_name", "")
    what = f"{kind.replace('_', ' ')} {name}".strip()
    return f"{what} ({_summary(event)})" if _summary(event) else what


def _summary(event: HistoryEvent) -> str:
    return event.user_metadata.summary.data.decode("utf-8", "replace").strip('"')


def _kind(event: HistoryEvent) -> str:
    return (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
