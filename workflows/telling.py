"""Telling people of a request at the bundle's times. Nothing waits for a notice, and nothing fails with one."""

import asyncio
import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from workflows.catalog import NOTIFY, TOOLS_QUEUE_SUFFIX
from workflows.notices import NOTICE_FAILED, NoticeRequest
from workflows.requests import Request

NOTICES_END = "notices-end-with-their-request"
"""The patch since which a notice that is being tried again is given up when its request is closed."""


class Telling:
    """`telling`: the notices that are on their way or due later."""

    telling: list["asyncio.Task[None]"]

    def publish(self) -> None:
        """Shows where it stands."""
        raise NotImplementedError

    def notices(self) -> list[float]:
        """The bundle's times, in seconds from the request."""
        raise NotImplementedError

    def notice_of(self, request: Request, stage: int) -> NoticeRequest:
        """What people are told of a request."""
        raise NotImplementedError

    def tell(self, request: Request) -> None:
        """Begins to send the bundle's notices of a request."""
        if self.notices():
            self.telling = [task for task in self.telling if not task.done()]
            self.telling.append(asyncio.create_task(self.tell_all(request)))

    async def tell_all(self, request: Request) -> None:
        """At each of the bundle's times, for as long as the request is open. One that cannot be told holds up none."""
        stages = enumerate(self.notices())
        due = [each for each in stages if each[0] >= request.told and each[0] not in request.told_late]
        await asyncio.gather(*(self._tell_at(request, *each) for each in due))

    async def _tell_at(self, request: Request, stage: int, after: float) -> None:
        if await self.open_until(request, stage, after):
            await self.send_notice(request, stage)
            request.told_late.append(stage)
            self.publish()

    async def open_until(self, request: Request, stage: int, after: float) -> bool:
        """Waits until the notice is due; False when the request was closed before."""
        left = request.asked_at + timedelta(seconds=after) - workflow.now()
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: request.outcome is not None,
                timeout=max(left, timedelta(0)),
                timeout_summary=f"notice {stage + 1} of {request.kind} {request.code}",
            )
        return request.outcome is None

    async def send_notice(self, request: Request, stage: int) -> None:
        """Sends it, and books what could not be told. What is not sent yet when the request is closed stays unsent."""
        queue, about = workflow.info().task_queue + TOOLS_QUEUE_SUFFIX, f"{request.kind} {request.code}"
        recall = asyncio.create_task(_recall(request, asyncio.current_task()))
        try:
            noticed = await NOTIFY.run(self.notice_of(request, stage), summary=f"tell people of {about}", queue=queue)
            if noticed.failed:
                request.untold = "; ".join(noticed.failed)
        except ActivityError as error:
            if request.outcome is None and is_cancelled_exception(error):
                raise
            request.untold = _untold(error)
        finally:
            recall.cancel()


async def _recall(request: Request, sending: "asyncio.Task[None] | None") -> None:
    await workflow.wait_condition(lambda: request.outcome is not None)
    if sending is not None and not sending.done() and workflow.patched(NOTICES_END):
        sending.cancel()


def _untold(error: ActivityError) -> str:
    """What the last attempt could not tell and why; the rest was sent."""
    cause: BaseException | None = error.cause
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type == NOTICE_FAILED:
            return cause.message
        cause = cause.__cause__
    return "no notice could be sent"
