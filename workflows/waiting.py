"""Waiting without holding anything, until it is so or a rollover is due."""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

from workflows.rollover import RollOver


class Waiting:
    """`rolling`: a rollover is due."""

    rolling: bool

    def publish(self) -> None:
        """Shows where it stands."""
        raise NotImplementedError

    async def wait(self, ready: Callable[[], bool], what: str, timeout: timedelta | None = None) -> None:
        """Raises RollOver when it is to continue as new meanwhile, TimeoutError when the time is over."""
        if ready():
            return
        self.publish()
        await workflow.wait_condition(
            lambda: ready() or self.rolling, timeout=timeout, timeout_summary=f"wait for {what}"
        )
        if not ready():
            raise RollOver
        self.publish()
