"""What is read off a finished run: its history, its pace, its replay."""

import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

WARM = 20
"""Turns at the start that warm everything up, and are left out of the pace."""


async def histories(client: Client, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHistory]:
    """The histories of all executions of a run, oldest first, by their own links."""
    found, run_id = [], handle.first_execution_run_id
    while run_id:
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        found.append(history)
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


def weigh(found: list[WorkflowHistory], turns: int) -> dict[str, Any]:
    """Bytes and events, and both by kind of event: how many, and bytes per turn."""
    kinds: dict[str, list[int]] = {}
    for event in (event for history in found for event in history.events):
        kind = kinds.setdefault(EventType.Name(event.event_type).removeprefix("EVENT_TYPE_"), [0, 0])
        kind[0] += 1
        kind[1] += event.ByteSize()
    size, events = sum(kind[1] for kind in kinds.values()), sum(kind[0] for kind in kinds.values())
    return {
        "history_bytes": size,
        "history_events": events,
        "history_bytes_per_turn": round(size / turns),
        "history_events_per_turn": round(events / turns, 2),
        "executions": len(found),
        "by_event": {name: [count, round(total / turns)] for name, (count, total) in sorted(kinds.items())},
    }


def pace(found: list[WorkflowHistory], turns: int, activity: str = "model.turn") -> dict[str, Any]:
    """Milliseconds per turn at both ends, by when the turns were scheduled. Nothing for a run of a few turns."""
    events = [event for history in found for event in history.events]
    names = [(event.activity_task_scheduled_event_attributes.activity_type.name, event) for event in events]
    times = sorted(event.event_time.ToDatetime() for name, event in names if name == activity)
    if turns < 4 or len(times) < 4:
        return {}
    window, skip = max(1, min(500, turns // 10)), min(WARM, turns // 10)
    start, end = _mean(times[skip : skip + window + 1]), _mean(times[-window - 1 :])
    return {"ms_per_turn_start": start, "ms_per_turn_end": end, "ms_ratio": round(end / start, 2) if start else None}


def _mean(part: list[datetime]) -> float:
    return round((part[-1] - part[0]).total_seconds() * 1000 / max(1, len(part) - 1), 1)


async def replay_cpu(found: list[WorkflowHistory], replayer: Replayer, times: int = 3) -> float:
    """CPU seconds of replaying the histories, the best of some. The first of them also pays for imports."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        async with replayer.workflow_replay_iterator(_each(found)) as results:
            async for result in results:
                if result.replay_failure is not None:
                    raise result.replay_failure
        best = min(best, time.process_time() - began)
    return round(best, 3)


async def _each(found: list[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for history in found:
        yield history
