"""Who runs for whom: the records by which a run and its sub-agents know each other; see `records`."""

from typing import Literal

from workflows.effect_record import Record, Repeat

DELEGATE = "delegate"
"""The tool that starts a sub-agent."""

OnClose = Literal["cancel", "abandon"]
"""What becomes of a sub-agent when its parent has ended without it: it is asked to cancel, or goes on alone."""


class Limits(Record):
    """Totals at which a run stops and waits; `None` is no limit. `seconds` counts time not spent waiting."""

    turns: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None


class Chosen(Record):
    """What the start of a run said itself: it stays when the run moves to another version of its bundle. `wait`:
    seconds."""

    limits: Limits = Limits()
    wait: float | None = None
    repeat: Repeat | None = None


class Parent(Record):
    """In a child: the run that it works for. `run`: the run id of that one's first execution; `depth_left`: how many
    levels of sub-agents the child may have below itself."""

    workflow_id: str
    run: str
    depth_left: int = 0
    on_close: OnClose = "cancel"


class Child(Record):
    """In a parent: a run that works for it. `run`: the run id of its first execution; `limits`: what was reserved for
    it out of the parent's own."""

    workflow_id: str
    run: str
    limits: Limits = Limits()
    on_close: OnClose = "cancel"


class Terms(Record):
    """On what terms a sub-agent may be started. `run`: the run id of the parent's first execution; `requester`: who
    asked for the parent, where that is known."""

    grant: Limits = Limits()
    depth_left: int = 0
    run: str = ""
    requester: str | None = None
