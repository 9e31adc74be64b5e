"""Which questions are put to people: those that have an answer, of which the shown command holds one."""

from typing import Any

import pytest

from activities.questions import no_answer, unaskable

MOST = 16_384


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"choices": ["red", "blue"]},
        {"choices": ["1", "2"], "schema": {"type": "string"}},
        {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        {"schema": {"type": "string", "pattern": "^[0-9]{5}$", "examples": ["01067"]}},
        {"schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}},
        {"schema": {"type": "number", "exclusiveMaximum": 1}},
        {"schema": {"type": "integer", "maximum": -3}},
    ],
)
async def test_a_question_with_an_answer_is_asked(question: dict[str, Any]) -> None:
    assert await unaskable({"question": "Which?", **question}, MOST) is None


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"choices": ["1", "2"], "schema": {"type": "integer"}}, "The choice '1' is no answer"),
        ({"schema": {"not": {}}}, "into its `examples`"),
        ({"schema": {"type": "string", "pattern": "^[0-9]{5}$"}}, "into its `examples`"),
        ({"schema": {"type": "string", "pattern": "^[0-9]{5}$", "examples": ["x"]}}, "into its `examples`"),
        ({"schema": {"allOf": [{"enum": [1]}, {"enum": [2]}]}}, "into its `examples`"),
        ({"schema": {"type": "array", "minItems": 2, "uniqueItems": True}}, "into its `examples`"),
    ],
)
async def test_a_question_that_nobody_could_answer_as_shown_goes_back_to_the_agent(
    question: dict[str, Any], said: str
) -> None:
    assert said in str(await unaskable({"question": "Which?", **question}, MOST))


async def test_an_empty_text_is_no_answer() -> None:
    assert await no_answer({}, " ") is not None
    assert await no_answer({}, "yes") is None
    assert await no_answer({"choices": ["", "x"]}, "") is None, "where it is one of the choices"
