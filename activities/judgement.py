"""The model's judgement of a session that ends: JSON of a schema, checked, asked for again where it does not fit."""

import json
import time
from dataclasses import dataclass
from typing import Any

from activities import compaction
from activities.context import Messages
from activities.errors import ContextOverflow, InvalidModelOutput, ModelRequestRejected, ModelTrouble, RateLimited
from activities.manifest import Manifest
from activities.reading import reserve_of
from activities.reply import Ask, NoSink
from activities.sessions import shorter
from activities.structured import read_structured
from activities.trail import Trail
from activities.world import World
from workflows.records import Usage

TRIES = 3
TRY_SECONDS = 180.0

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
    world: World, manifest: Manifest, context: Messages, wanted: Judgement, trail: Trail, left: dict[str, float]
) -> tuple[dict[str, Any], Usage]:
    """The judgement, and what it cost. A model that gives no usable one, or none that `left` allows (by the names of
    the limits), does not stop the run: what it said last stands in its place, and says so. Raises what may pass
    (ModelTrouble, RateLimited); what was asked until then is booked in `trail`."""
    nudge, least = "", Usage()
    schema = json.dumps(wanted.schema, ensure_ascii=False)
    while trail.tries < TRIES and _affords(left, trail.usage.plus(least)):
        trail.tries += 1
        words = f"{wanted.words} Answer with one JSON object and nothing else, by this JSON Schema: {schema}.{nudge}"
        shown, most = compaction.compacted(context)
        most = min(manifest.file.limits.tool_output, most or manifest.file.limits.tool_output)
        asked = Ask(manifest.prompt, [*shown, {"role": "user", "text": words}], [], most, wanted.schema, wanted.name)
        try:
            until = time.monotonic() + TRY_SECONDS
            reply = await world.router.reply(manifest.file.model, asked, trail, until, NoSink())
        except ContextOverflow:
            context = shorter(shown)
            continue
        except (ModelRequestRejected, InvalidModelOutput):
            break
        except (ModelTrouble, RateLimited):
            trail.tries -= 1
            raise
        trail.book(reply.usage)
        value, wrong = await read_structured(reply.text, wanted.schema)
        if isinstance(value, dict):
            return value, trail.usage
        least = reserve_of(reply.usage, manifest.file.model[reply.route].price) or least
        nudge = f" The last try did not fit: {wrong}"
    said = next((message["text"] for message in reversed(context) if message["role"] == "assistant"), "")
    return {wanted.name: "The session gave no usable judgement of itself.", "last_words": said}, trail.usage


def _affords(left: dict[str, float], spent: Usage) -> bool:
    used = {"tokens": spent.input_tokens + spent.output_tokens, "cost_usd": spent.cost_usd}
    return all(used[name] <= most for name, most in left.items())
