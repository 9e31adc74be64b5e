"""A migration of the bundle `moving`, as a user's module declares it."""

from typing import Any

from activities.migrations import migration


@migration("moving", "1", "2")
def one_list(state: dict[str, Any]) -> dict[str, Any]:
    """State schema 2 keeps what is to do and the next steps in one list."""
    return {"plan": [*state["to_do"], *state["next_steps"]], "done": state["done"]}
