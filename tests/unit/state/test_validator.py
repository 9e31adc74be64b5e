"""The one validator that every request passes: it takes every legal transcript and none that is broken."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.context import Messages, check, tool_message, user_message
from activities.errors import CheckpointDamaged
from activities.store import open_store
from tests.unit.state.chains import Chain

ENDS = ["done", "Error: it failed", "ann denied this call. It was not run.", "The arguments are malformed"]


@st.composite
def transcripts(draw: st.DrawFn, pending: bool = False) -> Messages:
    """A run: user messages, answers, nudges, and turns with several calls, each answered in one of the ways there are.
    `pending`: the last turn's answers are not all there yet."""
    messages: Messages = [user_message("goal")]
    turns = draw(st.integers(1, 8))
    for turn in range(1, turns + 1):
        if draw(st.booleans()):
            messages.append(user_message("by the way", "ann"))
        count = draw(st.integers(1 if pending and turn == turns else 0, 4))
        calls = [{"id": f"{turn}.{n}", "provider_id": "same", "tool": "t", "arguments": "{}"} for n in range(count)]
        messages.append({"role": "assistant", "text": draw(st.sampled_from(["", "so"])), "calls": calls})
        answered = draw(st.integers(0, count - 1)) if pending and turn == turns else count
        messages += [tool_message(call["id"], "t", draw(st.sampled_from(ENDS))) for call in calls[:answered]]
    return messages


@given(transcripts())
def test_every_settled_transcript_passes(messages: Messages) -> None:
    check(messages)


@given(transcripts(pending=True))
def test_one_with_a_pending_call_does_not(messages: Messages) -> None:
    with pytest.raises(CheckpointDamaged, match="not answered"):
        check(messages)


@given(transcripts(), st.data())
def test_every_way_to_break_one_is_seen(messages: Messages, data: st.DataObject) -> None:
    answers = [index for index, message in enumerate(messages) if message["role"] == "tool"]
    ways = ["drop", "twice", "foreign", "stray", "role"] if answers else ["stray", "role"]
    if any(messages[i]["role"] == messages[i - 1]["role"] == "tool" for i in range(1, len(messages))):
        ways.append("swap")
    how = data.draw(st.sampled_from(ways))
    broken: list[dict[str, Any]] = [dict(message) for message in messages]
    if how == "stray":
        broken.insert(data.draw(st.integers(0, len(broken))), tool_message("99.0", "t", "of nothing"))
    elif how == "role":
        broken[data.draw(st.integers(0, len(broken) - 1))]["role"] = "system"
    elif how == "swap":
        pairs = [i for i in answers if i - 1 in answers]
        place = data.draw(st.sampled_from(pairs))
        broken[place - 1 : place + 1] = [broken[place], broken[place - 1]]
    else:
        place = data.draw(st.sampled_from(answers))
        if how == "drop":
            del broken[place]
        elif how == "twice":
            broken.insert(place, dict(broken[place]))
        else:
            broken[place]["call"] = "99.0"
    with pytest.raises(CheckpointDamaged):
        check(broken)


@given(transcripts(), st.data())
def test_a_part_that_begins_or_ends_between_turns_passes_and_any_other_does_not(
    messages: Messages, data: st.DataObject
) -> None:
    """What a handoff or a summary may cut: whole turns, after a user message that stands for what is gone."""
    cut = data.draw(st.integers(1, len(messages)))
    rest = messages[cut:]
    whole = not rest or rest[0]["role"] != "tool"
    handoff = [user_message("what was before"), *rest]
    if whole:
        check(handoff)
    else:
        with pytest.raises(CheckpointDamaged):
            check(handoff)


def test_an_id_that_is_used_twice_is_seen() -> None:
    call = {"id": "1.0", "provider_id": "", "tool": "t", "arguments": "{}"}
    turn = [{"role": "assistant", "text": "", "calls": [call]}, tool_message("1.0", "t", "done")]
    with pytest.raises(CheckpointDamaged, match="twice"):
        check([user_message("goal"), *turn, *turn])


async def test_what_a_cold_worker_rebuilds_may_be_sent() -> None:
    chain = Chain(open_store("memory:///"))
    await chain.open()
    await chain.turns(40)
    assert chain.head is not None
    messages = await Chain(chain.store).contexts.load(chain.thread, chain.head)
    check([*messages, tool_message("40.0", "read", "result 40")])
