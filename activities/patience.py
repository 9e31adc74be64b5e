"""For how long a model is asked for one thing, a turn or a handoff: over all attempts, on whichever worker.

Temporal repeats an attempt without end; here it ends some time, with a name that users may rely on, and what it cost.
"""

import traceback

from temporalio import activity

from activities.errors import (
    ContextOverflow,
    Failure,
    InvalidModelOutput,
    ModelRequestRejected,
    ModelTrouble,
    ModelUnavailable,
    RateLimited,
)
from activities.store import Store
from activities.trail import Trail
from workflows.records import TurnRequest
from workflows.session_records import HandoffRequest

MOST_CRASHES = 5
"""Attempts at one thing that may end with an error of ours, which is no failure with a name."""

ENDING = (ContextOverflow, InvalidModelOutput, ModelRequestRejected, ModelUnavailable)


def failed(error: Failure, trail: Trail, limit: float) -> Failure:
    """The failure to end the attempt with: trouble that lasts for longer than `limit` seconds has another name, and
    what ends the run says what it cost."""
    if isinstance(error, RateLimited):
        trail.since = None  # the run is parked for as long as the server asked for
    if isinstance(error, ModelTrouble):
        wait = error.next_retry_delay
        failing = trail.failed(wait.total_seconds() if wait is not None else 0.0)
        if failing < limit:
            return error
        error = ModelUnavailable(f"{error.message}; failing for {failing:.0f} s, longer than unavailable_after")
    return _with_cost(error, trail)


async def crashed(store: Store, request: TurnRequest | HandoffRequest, error: Exception) -> Failure:
    """A named failure for an error of ours: its kind and place only, since its text may hold anything."""
    trail = await Trail.load(store, request)
    trail.crashes += 1
    await trail.save(store, request)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "activities" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "unknown place"
    what = f"turn {request.turn}" if isinstance(request, TurnRequest) else f"the end of session {request.session}"
    said = f"an unexpected {type(error).__name__} at {where} ended attempt {trail.crashes} at {what}"
    activity.logger.error("%s: %s", activity.info().activity_type, said)
    if trail.crashes < MOST_CRASHES and activity.info().attempt < 10 * MOST_CRASHES:
        return ModelTrouble(said)
    remedy = "Retries do not mend it: report it, then fork from the last checkpoint"
    return _with_cost(ModelUnavailable(f"{said}. {remedy}"), trail)


def _with_cost(error: Failure, trail: Trail) -> Failure:
    """The failure with what its requests cost as the last detail, where nothing else would ever count it."""
    if not isinstance(error, ENDING) or not trail.usage.requests:
        return error
    return type(error)(error.message, *error.details, {"usage": trail.usage.model_dump(exclude_defaults=True)})
