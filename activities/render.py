"""What both wire formats share: call ids, the note of the schema, and how long texts are shortened."""

import json
import re
from hashlib import sha256
from typing import Any

_USABLE = re.compile(r"[!-~]{1,64}")
_SHORT = re.compile(r"[A-Za-z0-9]{9}")
_OURS = "pd_"


def schema_note(message: dict[str, Any]) -> str:
    """What is added to the first message where the final answer must satisfy a schema."""
    if "output_schema" not in message:
        return ""
    schema = json.dumps(message["output_schema"], ensure_ascii=False)
    return f"\n\nYour final answer must be one JSON value, nothing else, that satisfies this JSON Schema:\n{schema}"


def wire_ids(context: list[dict[str, Any]], *, short: bool = False) -> dict[str, str]:
    """Our call ids to those on the wire: the provider's own where it is usable and was not used before, else ours.
    `short`: all of them have nine letters and digits.

    The first use of an id keeps it, so that what was sent once is sent the same for ever.
    """
    form = _SHORT if short else _USABLE
    found: dict[str, str] = {}
    taken: set[str] = set()
    for call in (call for message in context for call in message.get("calls", ())):
        theirs = call["provider_id"]
        usable = bool(form.fullmatch(theirs)) and not theirs.startswith(_OURS) and theirs not in taken
        ours = sha256(call["id"].encode()).hexdigest()[:9] if short else _OURS + call["id"].replace(".", "_")
        found[call["id"]] = theirs if usable else ours
        taken.add(found[call["id"]])
    return found


def cut_middle(text: str, most: int) -> str:
    """The text in at most about `most` characters: its head and its tail, and how much is left out between."""
    if len(text) <= most:
        return text
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    return f"{head}\n[… {len(text) - len(head) - len(tail)} of {len(text)} characters left out …]\n{tail}"
