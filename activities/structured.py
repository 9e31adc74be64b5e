"""Structured output: how the final answer is asked for as JSON of a schema, and how it is read.

Three ways, whichever the server can: natively, by a tool that takes the answer, or by prompt. The schema also stands in
the first message, so each of them is checked the same, and what comes as text is read whichever way was asked for.
"""

import json
import string
from typing import Any

from activities.manifest import Model, wire_name
from activities.profiles import profile_of
from activities.reply import Ask, Mode
from activities.schemas import misfit_in_time
from workflows.messages import loads

FINAL_TOOL = "final_answer"
MOST_BYTES = 500_000
"""The most of a structured answer, since it travels through history."""

MOST_FENCES = 16
"""Of the code fences in an answer so many are tried, counted from its beginning and from its end."""


def mode_of(route: Model, ask: Ask, quirks: set[str]) -> Mode | None:
    """How the final answer is asked for. OpenAI takes a schema beside tools; others then stop calling tools."""
    if ask.schema is None:
        return None
    if route.structured in ("tool", "prompt"):
        return "tool" if route.structured == "tool" else "prompt"
    if "no_json_schema" in quirks:
        return "prompt"
    if route.structured == "native" or profile_of(route) == "openai" or not ask.tools:
        return "native"
    return "prompt"


def offered(ask: Ask, mode: Mode | None) -> list[dict[str, Any]]:
    """The tools as both formats offer them: name, description, parameters; and the one for the final answer."""
    found = [
        {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.parameters}
        for tool in ask.tools
    ]
    return [*found, final_tool(ask.schema)] if mode == "tool" and ask.schema is not None else found


def final_tool(schema: dict[str, Any]) -> dict[str, Any]:
    """The tool that takes the final answer. A schema of no object stands in a field, since arguments are objects."""
    parameters = schema if schema.get("type") == "object" else _wrapped(schema)
    return {
        "name": FINAL_TOOL,
        "description": "Gives your final answer. Call it alone, when you are done.",
        "parameters": parameters,
    }


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


def native_schema(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema as a server takes it; strictly, where it fits the rules for that."""
    return {"name": name, "schema": schema, "strict": _fits_strict(schema)}


def _fits_strict(schema: Any) -> bool:
    """Every object closed, with all of its fields required, and the top one an object."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return False

    def holds(part: Any) -> bool:
        if isinstance(part, list):
            return all(map(holds, part))
        if not isinstance(part, dict):
            return True
        if part.get("type") == "object":
            fields = part.get("properties", {})
            if part.get("additionalProperties") is not False or set(part.get("required", [])) != set(fields):
                return False
        return all(map(holds, part.values()))

    return holds(schema)


def from_tool(arguments: str, schema: dict[str, Any]) -> str:
    """The final answer out of the arguments of its tool, as the text that it could have been."""
    if schema.get("type") == "object":
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return json.dumps(value["value"], ensure_ascii=False) if isinstance(value, dict) and "value" in value else arguments


async def read_structured(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The JSON of a final answer, out of prose or a code fence if it stands in one; and what is wrong, if anything."""
    problem = None
    for body in _candidates(text):
        try:
            value = loads(body)
        except ValueError as error:
            problem = problem or f"Your final answer is not JSON ({error}). Give one JSON value and nothing else."
            continue
        try:
            wrong = await misfit_in_time(value, schema)
        except ValueError as error:
            return None, f"Your final answer cannot be checked ({error})."
        if wrong is None and len(json.dumps(value)) > MOST_BYTES:
            return None, f"Your final answer is longer than {MOST_BYTES} bytes. Give a shorter one."
        if wrong is None:
            return value, None
        problem = f"Your final answer does not satisfy the schema: {wrong}"
    return None, problem


def _without_language(fence: str) -> str:
    return fence.lstrip(string.ascii_letters + string.digits + "_-").strip()


def _candidates(text: str) -> list[str]:
    """The whole text, what stands in fences, and from the first bracket to the last that closes it."""
    fences = text.split("```")[1:-1:2]
    found = [text.strip(), *map(_without_language, [*fences[:MOST_FENCES], *fences[MOST_FENCES:][-MOST_FENCES:]])]
    for opens, closes in sorted((("{", "}"), ("[", "]")), key=lambda pair: text.find(pair[0]) % (len(text) + 1)):
        first, last = text.find(opens), text.rfind(closes)
        if 0 <= first < last:
            found.append(text[first : last + 1])
    return list(dict.fromkeys(found))
