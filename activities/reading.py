"""What a whole reply is: the kind of turn that it makes, the judged calls, and what the model is told of none."""

from typing import Any

from activities.canonical import preview
from activities.context import Messages
from activities.errors import cut
from activities.judge import Bench, Judged
from activities.leaks import is_leaked
from activities.manifest import Manifest, Price, wire_name
from activities.reply import Reply, price_usage
from activities.structured import FINAL_TOOL, from_tool, read_structured
from workflows.records import Head, Turn, TurnKind, Usage

OUTPUT_BYTES = 250_000
"""The most of a final answer that travels through history. Its JSON may be twice as long, and must stay under what is
kept outside of history: the plain `temporal` command shows only a reference to that. The whole is in the transcript."""

_GO_ON = " Call a tool, or give your final answer."
_NUDGES = {
    "truncated": "Your last message was cut off at the output limit." + _GO_ON,
    "empty": "Your last message was empty." + _GO_ON,
    "leaked": "Your last message held a tool call as text, which was not run. Make calls as tool calls, not as text.",
}


def kind_of(reply: Reply) -> TurnKind:
    """What a reply is. Calls decide, not the finish reason; but what a filter or a refusal stopped is not acted on."""
    if reply.stopped is not None:
        return reply.stopped
    if reply.calls:
        return "calls"
    return "empty" if not reply.text.strip() or reply.finish_reason == "length" else "answer"


def take_final(reply: Reply, schema: dict[str, Any] | None) -> None:
    """Turns a lone call of the final answer's tool into the answer that it holds."""
    if schema is not None and reply.mode == "tool" and [call.name for call in reply.calls] == [FINAL_TOOL]:
        reply.text, reply.calls = from_tool(reply.calls[0].arguments, schema), []


async def read_reply(reply: Reply, bench: Bench, context: Messages, spent: Usage) -> tuple[Turn, dict[str, Any] | None]:
    """The turn, and the message that the context keeps of it. `spent`: what failed requests for it have cost."""
    request, manifest, schema = bench.request, bench.manifest, context[0].get("output_schema")
    take_final(reply, schema)
    kind, judged, structured = kind_of(reply), list[Judged](), None
    output, nudge, faults = reply.refusal or reply.text, None, list[str]()
    if kind == "calls":
        judged = await bench.judge(reply.calls)
        faults = sorted({each.fault for each in judged if each.fault is not None})
    elif kind == "empty":
        faults = ["truncated" if reply.cut else "empty"]
    elif kind == "answer" and is_leaked(reply.text, tool_names(manifest)):
        kind, faults = "empty", ["leaked"]
    elif kind == "answer" and schema is not None:
        structured, nudge = await read_structured(output, schema)
        kind, faults = ("empty", ["schema"]) if nudge else ("answer", [])
    if kind == "empty" and nudge is None:
        nudge = _NUDGES[faults[0]]
    turn = Turn(
        head=Head(branch=request.branch, sequence=request.turn, sha256=""),
        kind=kind,
        text=preview(output),
        calls=[each.call for each in judged],
        usage=spent.plus(reply.usage) if spent.requests else reply.usage,
        model=reply.model,
        route=reply.route,
        output=cut(output, OUTPUT_BYTES) if kind not in ("calls", "empty") else None,
        structured=structured,
        nudge=nudge,
        faults=faults,
        quirks={str(reply.route): sorted(reply.quirks)} if reply.quirks else {},
        reserve=reserve_of(reply.usage, manifest.file.model[reply.route].price),
    )
    return turn, message_of(reply, output, judged)


def message_of(reply: Reply, output: str, judged: list[Judged]) -> dict[str, Any] | None:
    """The model's message as the context keeps it; None for one that says nothing."""
    if not output.strip() and not judged:
        return None
    message: dict[str, Any] = {"role": "assistant", "text": output, "calls": [each.message for each in judged]}
    if reply.reasoning is not None:
        message["reasoning"] = reply.reasoning
    return message


def reserve_of(usage: Usage, price: Price) -> Usage | None:
    """What the next call costs at least: it reads all of this one's context again, at best from the cache."""
    if not usage.input_tokens:
        return None
    least = price_usage(0, usage.input_tokens, 0, price)
    return Usage(input_tokens=least.input_tokens, cost_usd=least.cost_usd)


def tool_names(manifest: Manifest) -> list[str]:
    """The names of the tools on offer, in both forms."""
    return [name for tool in manifest.tools for name in {tool.name, wire_name(tool.name)}]
