"""What servers differ in: named by the bundle, or found out from a refusal, once, and remembered."""

from itertools import pairwise
from typing import Any, get_args

import pytest

from activities.errors import ContextOverflow, ModelRequestRejected
from activities.manifest import Model, Profile
from activities.profiles import PROFILES, QUIRKS, quirks_of
from scripts.chat_protocol import RefusedError
from tests.faults.plays import ask, error, say
from tests.faults.server import FaultServer, Rule
from tests.unit.gateway_kit import Desk, turn

CALL = ask(("crm.find", {}), reasoning_content="I should look first.")


def refuse(field: str, said: str) -> Rule:
    """A server that does not take a field."""

    def rule(body: dict[str, Any]) -> None:
        if field in body:
            raise RefusedError(said)

    return rule


def needs_reasoning(body: dict[str, Any]) -> None:
    """A server whose model must see its own reasoning again."""
    for message in body["messages"]:
        if message["role"] == "assistant" and "reasoning_content" not in message:
            raise RefusedError("The reasoning_content in the thinking mode must be passed back to the API.")


def forbids_reasoning(body: dict[str, Any]) -> None:
    """A server that refuses to see it."""
    for index, message in enumerate(body["messages"]):
        if "reasoning_content" in message:
            raise RefusedError(f"messages[{index}].reasoning_content: Extra inputs are not permitted")


def test_every_profile_is_known_and_made_of_known_quirks() -> None:
    assert set(get_args(Profile)) == {"auto", *PROFILES}
    assert set().union(*PROFILES.values()) <= set(QUIRKS)


def test_what_was_found_out_overrules_the_profile() -> None:
    route = Model(model="m", profile="reasoning_forbidden")
    assert "reasoning_back" in quirks_of(route, {"reasoning_back"})
    assert "reasoning_forbidden" not in quirks_of(route, {"reasoning_back"})


@pytest.mark.parametrize("profile", ["auto", "reasoning_back"])
async def test_reasoning_goes_back_with_its_own_turn_where_the_server_needs_it(profile: str) -> None:
    with FaultServer([CALL, *[ask(("crm.find", {}))] * 3, say("done")], needs_reasoning) as server:
        asking = Desk(server, {"profile": profile})
        first = turn(await asking.ask())
        second = turn(await asking.ask(*first), 2)  # this one came without any reasoning
        await asking.ask(*first, *second)
    said = [m["reasoning_content"] for m in server.asked[-1].body["messages"] if m["role"] == "assistant"]
    assert said == ["I should look first.", ""]
    assert len(server.refused) == (1 if profile == "auto" else 0)
    assert server.invalid == []


@pytest.mark.parametrize("profile", ["auto", "reasoning_forbidden"])
async def test_reasoning_stays_away_where_the_server_forbids_it(profile: str) -> None:
    with FaultServer([CALL, say("done")], forbids_reasoning) as server:
        asking = Desk(server, {"profile": profile})
        await asking.ask(*turn(await asking.ask()))
    assert (server.requests(), server.refused) == (2, [])


@pytest.mark.parametrize(
    ("route", "rule", "quirk"),
    [
        (
            {"model": "house-model", "max_output_tokens": 9},
            refuse("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                   "'max_completion_tokens' instead."),
            "max_completion_tokens",
        ),
        ({"model": "gpt-like", "max_output_tokens": 9}, refuse("max_completion_tokens", "Unrecognized request argument "
                                                               "supplied: max_completion_tokens"), "max_tokens"),
        ({}, refuse("stream_options", "unknown field `stream_options`"), "no_stream_options"),
        ({"temperature": 0.2}, refuse("temperature", "'temperature' does not support 0.2"), "no_temperature"),
        ({}, refuse("stream", "streaming is not supported with tools"), "no_stream"),
    ],
)  # fmt: skip
async def test_a_refused_form_is_found_out_once(route: dict[str, Any], rule: Rule, quirk: str) -> None:
    with FaultServer([say("good")], rule) as server:
        asking = Desk(server, route)
        first, second = await asking.ask(), await asking.ask()
    assert (first.text, second.text) == ("good", "good")
    assert first.quirks == {quirk}
    assert server.requests() == 3
    assert asking.trail.requests == 1


async def test_ids_of_calls_are_short_where_a_server_wants_that() -> None:
    def strict(body: dict[str, Any]) -> None:
        for message in body["messages"]:
            for each in [call["id"] for call in message.get("tool_calls", ())] + [message.get("tool_call_id")]:
                if each is not None and not (len(each) == 9 and each.isalnum()):
                    raise RefusedError(f"Tool call id was {each} but must be a-z, A-Z, 0-9, with a length of 9.")

    own = {"id": "aBcDeF123", "type": "function", "function": {"name": "crm__find", "arguments": "{}"}}
    with FaultServer([ask(("crm.find", {}), own), say("done")], strict) as server:
        asking = Desk(server)
        reply = await asking.ask(*turn(await asking.ask()))
    assert (reply.text, reply.quirks, server.invalid) == ("done", {"short_ids"}, [])
    first, second = (call["id"] for call in server.asked[-1].body["messages"][2]["tool_calls"])
    assert (len(first), second) == (9, "aBcDeF123")


async def test_text_is_never_null_and_users_take_turns_where_a_server_wants_that() -> None:
    def strict(body: dict[str, Any]) -> None:
        roles = [message["role"] for message in body["messages"]]
        if any(a == b == "user" for a, b in pairwise(roles)):
            raise RefusedError("After the optional system message, conversation roles must alternate user/assistant")
        if any(message["content"] is None for message in body["messages"]):
            raise RefusedError("Invalid type for 'messages[2].content': expected a string, got null")

    with FaultServer(lambda asked: say("done") if asked.turn else CALL, strict) as server:
        asking = Desk(server, {"max_output_tokens": 100})
        more = {"role": "user", "text": "And quickly."}
        reply = await asking.ask(more)
        await asking.ask(more, *turn(reply))
    assert asking.trail.learned(0) == {"merge_users", "text_not_null"}
    assert server.asked[-1].body["messages"][1]["content"] == "Do it.\n\nAnd quickly."


async def test_other_refusals_are_neither_quirks_nor_an_overfull_context() -> None:
    for said in (
        "max_tokens is too large: 999999. This model supports at most 16384 completion tokens",
        "Invalid value for 'tools[0].function.name'",
        "This model's context is a mystery to us",
        "max_tokens (9999) exceeds the maximum of 4096 tokens",
        "Range of max_tokens should be [1, 8192]",
        "Request too large: too many tokens per min (TPM): limit 6000, requested 7000",
    ):
        with FaultServer([say("good")], refuse("messages", said)) as server, pytest.raises(ModelRequestRejected):
            await Desk(server).ask()
        assert server.requests() == 1


async def test_a_request_that_a_server_calls_too_large_by_its_status_is_an_overfull_context() -> None:
    for said in ("Request Entity Too Large", "Request too large: tokens per minute (TPM): limit 6000, requested 7000"):
        with FaultServer([error(413, said)]) as server, pytest.raises(ContextOverflow):
            await Desk(server).ask()
        assert server.requests() == 1


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9300 tokens.",
        "the request exceeds the available context size, try increasing it",
        "litellm.ContextWindowExceededError: prompt is too long: 210000 tokens > 200000 maximum",
        "Input is too long for requested model.",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 200 `max_new_tokens`",
        "`inputs` must have less than 4095 tokens. Given: 9000",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
        "prompt token count of 70000 exceeds the limit of 64000",
        "Your request exceeded model token limit: 131072 (requested: 140000)",
        "The request of 9000 tokens exceeds the maximum of 4096 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "Prompt exceeds max length",
        "total tokens 9000 of image and text exceed max message tokens",
        "max_tokens must be at least 1, got -904: prompt too large",
        "Request too large for model: 9000 tokens, limit 8000",
    ],
)
async def test_an_overfull_context_has_many_wordings(said: str) -> None:
    with FaultServer([say("good")], refuse("messages", said)) as server, pytest.raises(ContextOverflow):
        await Desk(server).ask()
    assert server.requests() == 1
