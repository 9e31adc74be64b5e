"""Edits of a context: calls and answers stay together whatever is taken out, and numbers mean what they meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from activities.context import check, tool_message, user_message
from activities.edits import EditError, Spliced, edits_of, splice
from workflows.messages import Edit, explain


def said(text: str, *calls: str) -> dict[str, Any]:
    made = [{"id": call, "provider_id": call, "tool": "look", "arguments": "{}"} for call in calls]
    return {"role": "assistant", "text": text, "calls": made}


CONTEXT = [
    user_message("find it\n\nInputs:\n{}"),
    said("two", "1.0", "1.1"),
    tool_message("1.0", "look", "a"),
    tool_message("1.1", "look", "b"),
    user_message("go on", "ann"),
    said("one", "3.0"),
    tool_message("3.0", "look", "c"),
]
OPEN = [*CONTEXT, said("more", "4.0", "4.1"), tool_message("4.1", "look", "d")]


def after(*edits: dict[str, Any], context: list[dict[str, Any]] = CONTEXT, waiting: tuple[str, ...] = ()) -> Spliced:
    return splice(context, edits_of(edits), waiting)


def test_a_call_goes_with_its_answers_and_numbers_stay_those_before_the_edits() -> None:
    found = after({"drop": 1}, {"replace": 4, "content": "stop"}, {"append": "user", "content": "and now?"})
    assert [message["text"] for message in found.whole] == ["find it\n\nInputs:\n{}", "stop", "one", "c", "and now?"]
    assert found.whole[1]["by"] == "ann"
    assert found.left == ["1.0", "1.1"]


def test_a_new_goal_keeps_the_inputs_and_an_answer_is_replaced() -> None:
    found = after({"goal": "find the other"}, {"tool_result": "1.1", "content": {"rows": 3}})
    assert found.whole[0]["text"] == "find the other\n\nInputs:\n{}"
    assert (found.whole[3]["call"], found.whole[3]["text"]) == ("1.1", '{"rows": 3}')
    assert found.left == ["1.1"]


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([{"drop": 2}], "edits.0: dropping message 2 would orphan call 1.0: drop message 1"),
        ([{"drop": 0}], "message 0 is the goal"),
        ([{"drop": 7}], "there is no message 7"),
        ([{"drop": 1}, {"replace": 2, "content": "x"}], "edits.1: message 2 was dropped"),
        ([{"replace": 4, "content": " "}], "blank"),
        ([{"tool_result": "9.0", "content": "x"}], "there is no call '9.0' in the context; there are: 1.0, 1.1, 3.0"),
        ([{"drop": 5}, {"tool_result": "3.0", "content": "x"}], "there is no call '3.0'"),
    ],
)
def test_what_would_break_the_context_is_refused_by_name(edits: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(EditError) as refused:
        after(*edits)
    assert why in str(refused.value)


def test_open_calls_stay_open_or_are_settled_by_an_edit_and_what_is_said_comes_after_them() -> None:
    held = after({"append": "user", "content": "hurry"}, context=OPEN, waiting=("4.0",))
    assert (held.open, held.messages[-1]["text"], [each["call"] for each in held.answers]) == (True, "more", ["4.1"])
    assert [each["text"] for each in held.said] == ["hurry"]
    settled = after({"tool_result": "4.0", "content": "mine"}, context=OPEN, waiting=("4.0",))
    assert (settled.open, settled.split, [each["text"] for each in settled.answers]) == (False, True, ["mine", "d"])
    dropped = after({"drop": 7}, context=OPEN, waiting=("4.0",))
    assert (dropped.open, dropped.split, dropped.left) == (False, False, ["4.0", "4.1"])


EDIT = st.one_of(
    st.fixed_dictionaries({"drop": st.integers(0, 9)}),
    st.fixed_dictionaries({"replace": st.integers(0, 9), "content": st.text(max_size=5)}),
    st.fixed_dictionaries({"append": st.just("user"), "content": st.text("ab", min_size=1, max_size=5)}),
    st.fixed_dictionaries({"tool_result": st.sampled_from(["1.0", "3.0", "4.0", "4.1"]), "content": st.text()}),
    st.fixed_dictionaries({"goal": st.text("ab", min_size=1)}),
)


@given(st.lists(EDIT, max_size=6))
def test_whatever_is_edited_is_refused_or_whole(edits: list[dict[str, Any]]) -> None:
    before = [dict(message) for message in OPEN]
    try:
        found = after(*edits, context=OPEN, waiting=("4.0",))
    except EditError:
        return
    finally:
        assert before == OPEN, "the source stays as it is"
    if not found.open:
        check(found.whole)
    else:
        missing = [tool_message("4.0", "look", ""), *found.answers]
        check([*found.messages, *missing, *found.said])


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({}, "an edit has one of replace, drop, append, tool_result, goal"),
        ("drop 3", "an edit has one of"),
        ({"drop": "3"}, "edits.0.drop.drop"),
        ({"drop": -1}, "edits.0.drop.drop"),
        ({"drop": 1, "content": "x"}, "content` is not a field"),
        ({"replace": 1}, "content` is missing"),
        ({"append": "assistant", "content": "x"}, "edits.0.append.append"),
        ({"append": "user", "content": "  "}, "blank"),
        ({"goal": ""}, "blank"),
    ],
)
def test_an_edit_that_is_none_is_named(edit: Any, why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Edit.model_validate({"by": "ann", "edits": [edit]})
    assert why in explain(refused.value)
