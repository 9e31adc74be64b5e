"""Facts across runs: `remember` and `recall`.

They reach their own prefix of the store and nothing else, and need no credential. A bundle says which scopes its agents
may use without asking: `[remember] scopes = ["team-*"]`, and the same under `[recall]`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from activities.tools.declaration import tool
from activities.tools.errors import ToolError
from activities.tools.operation import Operation, Recollection


def outside(arguments: dict[str, Any], options: dict[str, Any]) -> str | None:
    """Why a person is asked: the bundle names scopes, and this is none of them."""
    scopes, scope = options.get("scopes"), str(arguments.get("scope", ""))
    if scopes is None or any(fnmatchcase(scope, str(glob)) for glob in scopes):
        return None
    return f"the scope {scope!r} is not among the bundle's scopes"


@tool(effect="idempotent", key_valid="7d", guard=outside)
async def remember(scope: str, key: str, value: str, *, op: Operation) -> str:
    """Remember a fact beyond this run, in place of what was remembered under the same key.

    Args:
        scope: whose fact it is, for example a project or a customer
        key: what it is about, in a few words
        value: the fact
    """
    number = await _memory(op).remember(scope, key, value, op.idempotency_key)
    return f"Remembered {key!r} in {scope!r} (version {number})."


@tool(effect="read", local=True, guard=outside)
async def recall(scope: str, key: str = "", *, op: Operation) -> str:
    """Recall a fact that this or another run remembered.

    Args:
        scope: whose fact it is
        key: what it is about; nothing lists the keys of the scope
    """
    memory = _memory(op)
    if not key:
        names = await memory.keys(scope)
        return "\n".join(names) or f"Nothing is remembered in {scope!r}."
    found = await memory.recall(scope, key)
    if found is None:
        return f"Nothing is remembered under {key!r} in {scope!r}."
    return f"{found['value']}\n[remembered at {found['at']}]"


def _memory(op: Operation) -> Recollection:
    if op.memory is None:
        raise ToolError("there is no memory here")
    return op.memory
