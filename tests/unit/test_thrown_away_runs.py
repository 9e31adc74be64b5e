"""A worker that ends throws its cached runs away: their coroutines are closed outside of any workflow."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from workflows.agent_run import AgentRun


async def never(*_: Any) -> Any:
    await asyncio.Event().wait()


def begun(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """The coroutine, as far as its first wait."""
    coroutine.send(None)
    return coroutine


async def test_a_run_that_is_thrown_away_asks_and_waits_for_nothing_any_more() -> None:
    run = object.__new__(AgentRun)
    run._serve = never  # type: ignore[method-assign]
    begun(run.undo_beside(never())).close()  # an await or a question to the workflow raises RuntimeError here
