"""Calls that are made again and again: told from the context alone, so the count outlives workers and rollovers."""

import json
import re
from typing import Any

from activities.canonical import preview
from activities.context import Messages
from activities.manifest import Caps


def repeated(context: Messages, tool: str, arguments: dict[str, Any], caps: Caps) -> str | None:
    """Why a person should be asked before this call is made once more; None where nothing speaks against it.

    Answers of calls that were not run do not count, nor do they break a row.
    """
    rows = _answers(context, tool, arguments)
    if not rows:
        return None
    if rows[0].startswith("Error:"):
        same = _row([error_fingerprint(text) for text in rows])
        if same >= caps.same_failures:
            return f"this very call failed the same way {same} times: {preview(rows[0], 150)}"
    elif caps.same_calls is not None and (same := _row(rows)) >= caps.same_calls:
        return f"this very call was answered the same {same} times: {preview(rows[0], 150)}"
    return None


def error_fingerprint(text: str) -> str:
    """What makes two errors the same: all but numbers and ids."""
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{12,}|\d+", "#", text.lower())


def _row(values: list[str]) -> int:
    """How many values at the beginning are equal."""
    return next((index for index, value in enumerate(values) if value != values[0]), len(values))


def _answers(context: Messages, tool: str, arguments: dict[str, Any]) -> list[str]:
    """The answers to equal calls that were run, the newest first."""
    calls = {
        call["id"]
        for message in context
        for call in message.get("calls") or ()
        if call["tool"] == tool and _same(call["arguments"], arguments)
    }
    texts = [message["text"] for message in context if message["role"] == "tool" and message["call"] in calls]
    return [text for text in reversed(texts) if not re.search(r"not run( again)?\.$", text)]


def _same(text: str, arguments: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(text) == arguments)
    except (ValueError, RecursionError):
        return False
