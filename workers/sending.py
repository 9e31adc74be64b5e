"""Sending updates so that each has exactly one outcome, also when the run continues as new in the middle of it."""

import asyncio
import secrets
import uuid
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

PATIENCE = 30.0
"""Seconds for which an update is sent again while the run is between two executions or no worker answers."""
CALL_SECONDS = 10.0
"""The longest that one call waits. The server would end the wait for a worker after 20 s, and the SDK begin it anew."""
PAUSE, LONGEST_PAUSE = 0.2, 3.0
AT_ONCE = 5
"""Updates of one run that a process has in flight. The server takes ten, and when an eleventh comes it drops the other
ten and the workflow task with them (tried); all of them sent again at once would keep the run from ever going on."""

_turns: WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = WeakValueDictionary()
_NEVER = (
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
)


class NotTaken(Exception):
    """The run refused the update, or there is nobody to take it. The text says why."""


class NotAnswered(NotTaken):
    """Nobody took it in time, or nobody said so. The text says which."""


async def send_update(
    client: Client, workflow_id: str, name: str, body: dict[str, Any], *, patience: float = PATIENCE
) -> dict[str, Any]:
    """Sends an update and gives the run's answer.

    What was cut off is sent again under the same update id, to the newest execution, for `patience` seconds; a run
    that has applied it already gives its first answer again. Raises NotTaken.
    """
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault((id(loop), workflow_id), asyncio.Semaphore(AT_ONCE))
    async with turn:
        return await _send(client, workflow_id, name, body, loop.time() + patience, patience)


async def _send(
    client: Client, workflow_id: str, name: str, body: dict[str, Any], end: float, patience: float
) -> dict[str, Any]:
    update_id, pause = uuid.uuid4().hex, PAUSE
    while True:
        handle = client.get_workflow_handle(workflow_id)
        reason = "no worker answered; what was sent may still be taken when one does"
        left = timedelta(seconds=min(CALL_SECONDS, max(1.0, end - asyncio.get_running_loop().time())))
        try:
            update = await handle.start_update(
                name,
                body,
                id=update_id,
                result_type=dict,
                wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                rpc_timeout=left,
            )
            reason = "it was taken, and no worker has answered yet"
            answer: dict[str, Any] = await update.result(rpc_timeout=left)
            return answer
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            raise NotTaken(cause.message if isinstance(cause, ApplicationError) else str(cause)) from None
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            pass
        except RPCError as error:
            reason = error.message
            if not await _goes_on(client, workflow_id, error):
                raise NotTaken(f"{workflow_id}: {reason}") from None
        if asyncio.get_running_loop().time() > end:
            raise NotAnswered(f"{workflow_id}: {reason}; it was sent again for {patience:g} s")
        await asyncio.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
        pause = min(2 * pause, LONGEST_PAUSE)


async def _goes_on(client: Client, workflow_id: str, error: RPCError) -> bool:
    """Whether it is worth sending again: the service was away, or one execution ended and the next one runs.

    The server says NOT_FOUND to what came in between two executions, and other things to what a failed workflow task
    swept away; so it is the run itself that is asked.
    """
    if error.status in _NEVER:
        return False
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as again:
        return again.status not in (*_NEVER, RPCStatusCode.NOT_FOUND)
    return found.status is WorkflowExecutionStatus.RUNNING
