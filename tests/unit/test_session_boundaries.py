"""What a session begins with: leaving out the middle never splits a call from its answers, and much is few objects."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from activities.context import check, tool_message, user_message
from activities.entries import Entries
from activities.sessions import begin, beginning, groups, shorter, split_middle
from activities.store import open_store

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


@given(contexts())
async def test_what_is_stored_as_a_beginning_is_read_back_by_a_worker_that_knows_nothing(context: Messages) -> None:
    store = open_store("memory://")
    base = await begin(Entries(store), "run.1", context)
    assert (await beginning(Entries(store), "run.1", base)).messages == context


async def test_a_long_beginning_is_few_objects_and_its_last_answers_are_entries_of_their_own() -> None:
    store = open_store("memory://")
    context = [user_message("do it")]
    for turn in range(1000):
        call = {"id": f"{turn}.0", "provider_id": "", "tool": "t", "arguments": "{}"}
        context += [{"role": "assistant", "text": "", "calls": [call]}, tool_message(f"{turn}.0", "t", str(turn))]
    base = await begin(Entries(store), "run.1", context)
    assert len(await store.keys("threads")) < 25
    read = await beginning(Entries(store), "run.1", base)
    assert read.messages == context
    assert await Entries(store).get("run.1", read.refs[-1].sha256) == context[-1]
