"""Sub-agents: a part of the work, given to a run of its own.

The bundle says what needs no person: `[delegate] bundles = ["researcher"]` lets others ask; and what becomes of a
sub-agent whose parent ends first: `on_close = "cancel"` (the default) or `"abandon"`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.declaration import tool
from activities.tools.errors import ToolError
from activities.tools.operation import Operation, Starter
from workflows.lineage import DELEGATE


class BudgetSlice(BaseModel):
    """What a sub-agent may use at most; the rest comes back. What is not named is an equal share of what is left."""

    model_config = ConfigDict(extra="forbid")

    turns: Annotated[int, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None
    tool_calls: Annotated[int, Field(ge=0)] | None = None
    cost_usd: Annotated[float, Field(gt=0)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None


def other_bundle(arguments: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Why a person is asked: the bundle names those that it delegates to, and this is none of them."""
    bundles, bundle = options.get("bundles"), arguments.get("bundle")
    if bundles is None or bundle is None or bundle in bundles or str(bundle).partition("@")[0] in bundles:
        return None
    return f"the bundle {bundle!r} is not among those that this one delegates to"


@tool(effect="idempotent", name=DELEGATE, guard=other_bundle)
async def delegate(
    goal: str,
    bundle: str | None = None,
    inputs: dict[str, Any] | None = None,
    budget: BudgetSlice | None = None,
    *,
    op: Operation,
) -> str:
    """Give a part of the work to a sub-agent and wait for its result. Several calls in one turn run at the same time.

    The sub-agent knows nothing of this conversation: the goal and the inputs are all that it is told.

    Args:
        goal: what it is to do, with all that is needed to do it
        bundle: which kind of agent; nothing means the same kind as you are
        inputs: data given to it beside the goal
        budget: the most it may use of what you have left
    """
    return json.dumps(await _starter(op).start(op.operation_id, dict(op.arguments), dict(op.options)))


@delegate.lookup
async def find(op: Operation) -> str | None:
    """The sub-agent that this operation started."""
    found = await _starter(op).find(op.operation_id, dict(op.arguments), dict(op.options))
    return None if found is None else json.dumps(found)


@delegate.compensate
async def stop(op: Operation, result: str) -> None:
    """Asks the sub-agent to cancel, if it is still at work."""
    await _starter(op).stop(str(json.loads(result)["workflow_id"]))


def _starter(op: Operation) -> Starter:
    if op.starter is None:
        raise ToolError("sub-agents cannot be started here")
    return op.starter
