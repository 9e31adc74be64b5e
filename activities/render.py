"""From the neutral context to the wire: the body of a Chat Completions request."""

import json
from typing import Any

from activities.context import Messages
from activities.manifest import Manifest, wire_name


def render(manifest: Manifest, context: Messages) -> list[dict[str, Any]]:
    """The messages as they are sent: the bundle's prompt, then the context, long tool results cut in the middle."""
    ids = _wire_ids(context)
    most = manifest.file.limits.tool_output
    system = {"role": "system", "content": manifest.prompt}
    return [system, *(_message(message, ids, most) for message in context)]


def tools(manifest: Manifest) -> list[dict[str, Any]]:
    """The tools as they are offered."""
    return [
        {
            "type": "function",
            "function": {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.parameters},
        }
        for tool in manifest.tools
    ]


def _message(message: dict[str, Any], ids: dict[str, str], most: int) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": ids[message["call"]], "content": cut_middle(message["text"], most)}
    if message["role"] == "user":
        return {"role": "user", "content": message["text"] + _schema_note(message)}
    if not message.get("calls"):
        return {"role": "assistant", "content": message["text"]}
    calls = [
        {
            "id": ids[call["id"]],
            "type": "function",
            "function": {"name": call["tool"], "arguments": call["arguments"]},
        }
        for call in message["calls"]
    ]
    return {"role": "assistant", "content": message["text"] or None, "tool_calls": calls}


def _schema_note(message: dict[str, Any]) -> str:
    if "output_schema" not in message:
        return ""
    schema = json.dumps(message["output_schema"], ensure_ascii=False)
    return f"\n\nYour final answer must be one JSON value, nothing else, that satisfies this JSON Schema:\n{schema}"


def _wire_ids(context: Messages) -> dict[str, str]:
    """The provider's own call ids where they are usable (given, and used once); else made from ours."""
    calls = [call for message in context for call in message.get("calls", ())]
    counts: dict[str, int] = {}
    for call in calls:
        counts[call["provider_id"]] = counts.get(call["provider_id"], 0) + 1
    return {
        call["id"]: call["provider_id"]
        if call["provider_id"] and counts[call["provider_id"]] == 1
        else "call_" + call["id"].replace(".", "_")
        for call in calls
    }


def cut_middle(text: str, most: int) -> str:
    """The text in at most about `most` characters: its head and its tail, and how much is left out between."""
    if len(text) <= most:
        return text
    head, tail = text[: most * 2 // 3], text[-(most // 3) :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} of {len(text)} characters left out …]\n{tail}"
