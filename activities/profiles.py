"""What servers differ in, as small named quirks.

A bundle names a profile; what it does not name is found out from the server's own refusal, once, and the run remembers
it (it is recorded with the turn). Every quirk is tried at most once for a request.
"""

import re

from activities.manifest import Model

QUIRKS: dict[str, str] = {
    "max_tokens": "takes the limit of the output as `max_tokens`, not as `max_completion_tokens`",
    "max_completion_tokens": "takes it as `max_completion_tokens`",
    "no_stream_options": "knows no `stream_options`, so a stream gives no token count",
    "no_stream": "cannot stream",
    "no_temperature": "takes no `temperature`",
    "no_json_schema": "has no structured output of its own",
    "reasoning_back": "wants to see its reasoning again with every turn that called tools",
    "reasoning_forbidden": "refuses to see reasoning",
    "text_not_null": "wants text in every message, if only an empty one",
    "merge_users": "wants users and assistants to take turns",
    "short_ids": "takes ids of calls of nine letters and digits only",
    "no_include": "keeps no encrypted reasoning (Responses)",
}

PROFILES: dict[str, frozenset[str]] = {
    "openai": frozenset({"max_completion_tokens"}),
    "compatible": frozenset({"max_tokens"}),
    "vllm": frozenset({"max_tokens"}),
    "ollama": frozenset({"max_tokens"}),
    "llamacpp": frozenset({"max_tokens", "text_not_null"}),
    "litellm": frozenset({"max_tokens"}),
    "reasoning_back": frozenset({"max_tokens", "reasoning_back"}),
    "reasoning_forbidden": frozenset({"max_tokens", "reasoning_forbidden"}),
    "plain": frozenset({"max_tokens", "no_stream_options", "no_json_schema", "reasoning_forbidden", "text_not_null"}),
}

_OPENAI_MODELS = ("gpt-", "o1", "o3", "o4", "chatgpt-")

OPPOSITES = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_back": "reasoning_forbidden",
    "reasoning_forbidden": "reasoning_back",
}

_SIZE = re.compile(r"too (large|small|long)|at (most|least)|exceed|(less|greater) than|out of range|must be")
"""Said of how large a limit may be, not of its name."""

_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"use '?max_completion_tokens|'?max_tokens'? is not (supported|compatible)", "max_completion_tokens"),
    (r"max_completion_tokens", "max_tokens"),
    (r"stream_options|include_usage", "no_stream_options"),
    (r"temperature", "no_temperature"),
    (r"response_format|json_schema|text\.format|structured output", "no_json_schema"),
    (r"stream(ing)?\b.{0,40}(not |un)support|(not |un)support\w*.{0,40}\bstream(ing)?\b", "no_stream"),
    (r"encrypted_content|\binclude\b", "no_include"),
    (r"must alternate|roles? (must|should) alternate|consecutive (user|messages)", "merge_users"),
    (r"length of 9\b", "short_ids"),
    (r"content.{0,60}(null|none|empty|string)|(null|none).{0,60}content", "text_not_null"),
)
_REASONING = re.compile(r"reasoning_content|reasoning_details|reasoning item|thinking")


def quirks_of(route: Model, learned: set[str] | frozenset[str] = frozenset()) -> set[str]:
    """The quirks of a route: its profile's, then what was found out, which overrules. A server that was found to want
    both of two opposites contradicts itself: there its profile stands."""
    clear = {quirk for quirk in learned if OPPOSITES.get(quirk) not in learned}
    return clear | {quirk for quirk in PROFILES[profile_of(route)] if OPPOSITES.get(quirk) not in clear}


def profile_of(route: Model) -> str:
    """The profile that the bundle names; else OpenAI's for OpenAI's own model names, and the plain old form."""
    if route.profile != "auto":
        return route.profile
    return "openai" if route.model.startswith(_OPENAI_MODELS) else "compatible"


def quirk_behind(status: int, message: str, has: set[str], sent: set[str]) -> str | None:
    """The quirk that explains a refusal of a request: one that is not assumed yet and changes something that was sent.

    `sent` names what the request held: see `wire_chat.features`.
    """
    if status not in (400, 422, 500, 501):
        return None
    said = message.lower()
    if _REASONING.search(said) and "messages" in sent:
        quirk = "reasoning_forbidden" if "reasoning" in sent else "reasoning_back"
        return None if quirk in has else quirk
    for pattern, quirk in _REFUSALS:
        if quirk in OPPOSITES and _SIZE.search(said):
            continue
        if quirk not in has and _NEEDS[quirk] & sent and re.search(pattern, said):
            return quirk
    return None


_NEEDS: dict[str, set[str]] = {
    "max_completion_tokens": {"max_tokens"},
    "max_tokens": {"max_completion_tokens"},
    "no_stream_options": {"stream_options"},
    "no_temperature": {"temperature"},
    "no_json_schema": {"json_schema"},
    "no_stream": {"stream"},
    "no_include": {"include"},
    "merge_users": {"messages"},
    "short_ids": {"messages"},
    "text_not_null": {"null_text"},
}
