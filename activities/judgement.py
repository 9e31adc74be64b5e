"""The model's judgement of a session that ends: JSON of a schema, checked, asked for again where it does not fit."""

import time
from dataclasses import dataclass
from typing import Any

from activities.context import Messages
from activities.errors import ContextOverflow, InvalidModelOutput
from activities.manifest import Manifest
from activities.reply import Ask, Nowhere
from activities.sessions import shorter
from activities.structured import read_structured
from activities.trail import Trail
from activities.world import World
from workflows.records import Usage

TRIES = 3
SECONDS = 780.0
"""For all tries: within the time of `session.handoff`."""

_TEXTS = {"type": "array", "items": {"type": "string"}}
_NAMES = ("done", "to_do", "decisions", "constraints", "open_questions", "next_steps")


@dataclass(frozen=True)
class Judgement:
    """What is asked for: the name of the structured output, its schema, and the words."""

    name: str
    schema: dict[str, Any]
    words: str


HANDOFF = Judgement(
    "handoff",
    {
        "type": "object",
        "properties": dict.fromkeys(_NAMES, _TEXTS),
        "required": list(_NAMES),
        "additionalProperties": False,
    },
    "This session ends here. Another one goes on with the task and sees nothing of this conversation, only the goal, "
    "facts from the system and what you write now. Write for it: what is done, what is to do, decisions with their "
    "reasons, constraints, open questions, next steps.",
)
SUMMARY = Judgement(
    "summary",
    {
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
        "additionalProperties": False,
    },
    "The conversation so far, but its first message, is replaced by a summary. Write that summary: what was done and "
    "found, decisions with their reasons, constraints, what is open. Keep names, numbers and paths.",
)


async def judge_session(
    world: World, manifest: Manifest, context: Messages, wanted: Judgement
) -> tuple[dict[str, Any], Usage]:
    """The judgement, and what it cost. A model that gives no usable one does not stop the run: what it said last stands
    in its place, and says so. Raises what may pass (ModelTrouble, RateLimited)."""
    trail, nudge, until = Trail(), "", time.monotonic() + SECONDS
    for _ in range(TRIES):
        words = f"{wanted.words} Answer with one JSON object and nothing else.{nudge}"
        question = {"role": "user", "text": words, "output_schema": wanted.schema}
        most = manifest.file.limits.tool_output
        ask = Ask(manifest.prompt, [*context, question], [], most, wanted.schema, wanted.name)
        try:
            reply = await world.gateway.ask(0, manifest.file.model[0], ask, trail, until, Nowhere())
        except ContextOverflow:
            context = shorter(context)
            continue
        except InvalidModelOutput:
            continue
        trail.book(reply.usage)
        value, wrong = read_structured(reply.text, wanted.schema)
        if isinstance(value, dict):
            return value, trail.usage
        nudge = f" The last try did not fit: {wrong}"
    said = next((message["text"] for message in reversed(context) if message["role"] == "assistant"), "")
    return {wanted.name: "The session gave no usable judgement of itself.", "last_words": said}, trail.usage
