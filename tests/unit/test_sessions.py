"""Leaving out the middle of a context never splits a call from its answers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from activities.context import check
from activities.sessions import groups, shorter, split_middle

Messages = list[dict[str, Any]]


@st.composite
def contexts(draw: st.DrawFn) -> Messages:
    """A goal, then turns with up to four parallel calls, answers, and people between."""
    found: Messages = [{"role": "user", "text": draw(st.text(max_size=50))}]
    for turn in range(draw(st.integers(0, 12))):
        calls = [
            {"id": f"{turn}.{index}", "provider_id": "", "tool": "t", "arguments": "{}"}
            for index in range(draw(st.integers(0, 4)))
        ]
        found.append({"role": "assistant", "text": draw(st.text(max_size=200)), "calls": calls})
        found += [
            {"role": "tool", "call": each["id"], "tool": "t", "text": draw(st.text(max_size=300))} for each in calls
        ]
        if draw(st.booleans()):
            found.append({"role": "user", "text": draw(st.text(max_size=100)), "by": "alice"})
    return found


@given(contexts(), st.floats(0.01, 1))
def test_what_is_left_of_a_compacted_context_may_be_sent(context: Messages, keep: float) -> None:
    first, middle, tail = split_middle(context, keep)
    assert [*first, *middle, *tail] == context
    assert first == context[:1]
    assert bool(tail) == (len(context) > 1)
    summary = {"role": "user", "text": "summed up"}
    check([*first, summary, *tail])
    check([*first, *middle])


@given(contexts())
def test_a_shortened_context_may_be_sent(context: Messages) -> None:
    check(shorter(context))
    assert len(groups(shorter(context))) <= len(groups(context)) + 1
