"""The model's judgement of a session that ends: JSON of a schema, checked, asked for again where it does not fit."""

from dataclasses import dataclass
from typing import Any

from activities.context import Messages
from activities.errors import ContextOverflow, InvalidModelOutput, ModelRequestRejected
from activities.manifest import Manifest
from activities.render import render
from activities.sessions import shorter
from activities.turn import read_structured
from activities.world import World
from workflows.records import Usage

TRIES = 3

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
    usage, nudge, form = Usage(), "", True
    for _ in range(TRIES):
        question = {"role": "user", "text": f"{wanted.words} Answer with one JSON object and nothing else.{nudge}"}
        asked = {"name": wanted.name, "schema": wanted.schema, "strict": True} if form else None
        try:
            reply = await world.gateway.ask(
                manifest.file.model[0], render(manifest, [*context, question]), [], form=asked
            )
        except ContextOverflow:
            context = shorter(context)
            continue
        except ModelRequestRejected:  # a server that cannot do structured output
            form, nudge = False, f" Its JSON Schema is: {wanted.schema}"
            continue
        except InvalidModelOutput:
            continue
        usage = usage.plus(reply.usage)
        value, wrong = read_structured(reply.text, wanted.schema)
        if isinstance(value, dict):
            return value, usage
        nudge = f" The last try did not fit: {wrong}"
    said = next((message["text"] for message in reversed(context) if message["role"] == "assistant"), "")
    return {wanted.name: "The session gave no usable judgement of itself.", "last_words": said}, usage
