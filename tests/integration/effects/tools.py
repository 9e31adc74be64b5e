"""Tools of every class, against the service in `outside`. Workers of the tests load them by PERDURE_TOOLS."""

import os
from typing import Any

import httpx

from activities.tools import Operation, ToolError, tool

TIMEOUT = 8.0


async def _do(kind: str, label: str, op: Operation) -> dict[str, Any]:
    body = {"label": label, "key": op.idempotency_key, "pid": os.getpid()}
    return await _post(kind, body, op)


async def _post(path: str, body: dict[str, Any], op: Operation) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        answer = await client.post(f"{await op.credential('outside')}/{path}", json=body)
    if answer.status_code == 409:
        raise ToolError("the service says no")
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


@tool(effect="read", timeout=TIMEOUT)
async def reads(label: str, *, op: Operation) -> dict[str, Any]:
    """Reads."""
    return await _do("nothing", label, op)


@tool(effect="idempotent", timeout=TIMEOUT)
async def keyed(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; the service honours the key."""
    return await _do("keys", label, op)


@tool(effect="once", timeout=TIMEOUT)
async def looked(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; the service can be asked."""
    return await _do("nothing", label, op)


@looked.lookup
async def look(op: Operation) -> dict[str, Any] | None:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        answer = await client.get(await op.credential("outside"), params={"key": op.idempotency_key})
    return answer.json() if answer.status_code == 200 else None


@tool(effect="once", timeout=TIMEOUT)
async def reviewed(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; nobody can be asked but a person."""
    return await _do("nothing", label, op)


@tool(effect="once", timeout=TIMEOUT, on_unknown="skip")
async def skipped(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; rather missed than doubled."""
    return await _do("nothing", label, op)


@tool(effect="once", timeout=TIMEOUT, on_unknown="retry")
async def retried(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; rather doubled than missed."""
    return await _do("nothing", label, op)


@tool(effect="once", timeout=60)
async def patient(label: str, *, op: Operation) -> dict[str, Any]:
    """Acts; it and its undoing have time."""
    return await _do("nothing", label, op)


@looked.compensate
@patient.compensate
@reviewed.compensate
async def undo(op: Operation, result: dict[str, Any]) -> None:
    assert result["id"], "the recorded result"
    await _post("undo", {"label": op.arguments["label"], "pid": os.getpid()}, op)
