"""What a model server is asked, and the one record of what it answered, whichever wire format it speaks."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from activities.manifest import Model, Price, ToolSpec
from workflows.records import Usage

CHARACTERS_PER_TOKEN = 4
MOST_TOKENS = 10**9
"""A server that counts more for one request has counted wrong: our own count stands in."""

Mode = Literal["native", "tool", "prompt"]

Delta = Callable[[str, str], Awaitable[None]]
"""Takes a piece of an answer as it comes: its kind (`text`, `reasoning`, `refusal` or `call`) and the text."""


class Sink(Protocol):
    """Where the pieces of an answer go while it comes."""

    async def start(self) -> None:
        """Another request begins: what the last one said is void."""

    async def __call__(self, kind: str, text: str) -> None:
        """Takes a piece."""


@dataclass(frozen=True)
class RawCall:
    """A call as the model sent it: nothing about it is trusted."""

    provider_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Ask:
    """One question: neutral messages, tools, and the schema of the final answer. `tool_output` is the most characters
    of a tool result that are shown."""

    system: str
    context: list[dict[str, Any]]
    tools: list[ToolSpec]
    tool_output: int = 50_000
    schema: dict[str, Any] | None = None
    schema_name: str = "final_answer"


_FINISHES = {
    "length": ("max_tokens", "max_output_tokens", "max_length", "model_length", "model_context_window_exceeded"),
    "content_filter": (
        *("content_filtered", "safety", "image_safety", "sensitive", "refusal", "recitation", "blocklist", "spii"),
        *("prohibited_content", "guardrail_intervened", "error_toxic"),
    ),
    "error": ("abort", "aborted", "network_error", "insufficient_system_resource"),
}
_FINISH_OF = {spelling: reason for reason, spellings in _FINISHES.items() for spelling in spellings}


def read_finish(value: Any) -> str | None:
    """Why an answer ended, in the words of Chat Completions, whatever the server's own: `content_filter: SAFETY`."""
    if not isinstance(value, str):
        return None
    said = clean(value).lower().partition(":")[0].strip().removeprefix("finish_reason_")
    return None if said in ("", "null", "none") else _FINISH_OF.get(said, said)


class NoSink:
    """Shows nothing."""

    async def start(self) -> None:
        """Nothing to do."""

    async def __call__(self, kind: str, text: str) -> None:
        """Nothing to do."""


@dataclass
class Reply:
    """A whole answer of the model. `cut`: the output limit ended it. `reasoning` is what its server may want to see
    again, with the wire format and the model that it belongs to."""

    text: str = ""
    refusal: str | None = None
    calls: list[RawCall] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    cut: bool = False
    reasoning: dict[str, Any] | None = None
    route: int = 0
    quirks: set[str] = field(default_factory=set)
    mode: Mode | None = None

    @property
    def stopped(self) -> Literal["refused", "content_filtered"] | None:
        """Whether the model refused, or a filter ended its answer. What came with it is not acted on."""
        if self.refusal:
            return "refused"
        return "content_filtered" if self.finish_reason == "content_filter" else None


class Passing(Exception):
    """A fault that may be gone in a moment. `unusable`: the server did answer, but what it sent is no answer; `cut`: an
    answer had begun, which has its price; `sent`: the request reached the server."""

    def __init__(self, said: str, *, unusable: bool = False, sent: bool = True) -> None:
        super().__init__(said)
        self.unusable, self.cut, self.sent = unusable, False, sent


class ServerError(Exception):
    """An error that a server reported inside an answer of status 200, as it came."""

    def __init__(self, body: Any) -> None:
        super().__init__("the server reported an error inside its answer")
        self.body = body


def price_usage(fresh: int, cached: int, output: int, price: Price, *, estimated: bool = False) -> Usage:
    """Tokens at the bundle's prices; `fresh` are the input tokens that were not cached."""
    cached_price = price.input if price.cached_input is None else price.cached_input
    cost = (fresh * price.input + cached * cached_price + output * price.output) / 1e6
    return Usage(
        requests=1,
        input_tokens=fresh + cached,
        output_tokens=output,
        cached_tokens=cached,
        cost_usd=round(cost, 9),
        estimated=estimated,
    )


def count_usage(usage: Any, names: tuple[str, str, str], price: Price) -> Usage | None:
    """The server's own count. `names` are its fields for input, output and the details of the input."""
    if not isinstance(usage, dict):
        return None
    read, written, details = names
    sums = [_tokens(usage.get(read)), _tokens(usage.get(written))]
    if sums[0] is None or sums[1] is None:
        return None
    told = usage.get(details)
    cached = min(sums[0], (_tokens(told.get("cached_tokens")) or 0) if isinstance(told, dict) else 0)
    return price_usage(sums[0] - cached, cached, sums[1], price)


def _tokens(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return None
    return int(value)


def estimate_usage(body: dict[str, Any], said: int, price: Price) -> Usage:
    """Our own count, where the server gave none: about four characters a token. `said`: characters of the answer."""
    return price_usage(estimate_tokens(body), 0, -(-said // CHARACTERS_PER_TOKEN), price, estimated=True)


def cost_so_far(body: dict[str, Any], usage: Usage | None, said: int, price: Price) -> Usage | None:
    """What an answer that is not whole has cost: the server's count, else ours once some of it came; None before."""
    if usage is not None and usage.input_tokens + usage.output_tokens:
        return usage
    return estimate_usage(body, said, price) if said else None


def estimate_tokens(body: dict[str, Any]) -> int:
    """About how many tokens a request has."""
    asked = [body.get(key) for key in ("messages", "input", "instructions", "tools") if body.get(key)]
    return -(-len(json.dumps(asked, ensure_ascii=False)) // CHARACTERS_PER_TOKEN)


def finish(reply: Reply, body: dict[str, Any], usage: Usage | None, route: Model) -> Reply:
    """Settles usage and whether the output limit cut the answer: some servers do not say so, but stop right at it."""
    said = len(reply.text) + len(reply.refusal or "") + sum(len(c.name) + len(c.arguments) for c in reply.calls)
    reply.usage = usage or estimate_usage(body, said, route.price)
    most = route.max_output_tokens
    at_limit = most is not None and not reply.usage.estimated and reply.usage.output_tokens >= most
    reply.cut = reply.finish_reason == "length" or at_limit
    return reply


def clean(value: Any) -> str:
    """Text out of anything that should have been text: half surrogate pairs are no characters, and are replaced."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isascii() else paired(text).encode("utf-8", "replace").decode("utf-8")


def paired(text: str) -> str:
    """The text with the halves of surrogate pairs put together that came in different pieces of it."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
