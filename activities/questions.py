"""What an agent may ask people, and what is an answer to it."""

from typing import Any

from activities.canonical import fits
from activities.schemas import check_schema, misfit_in_time


def unaskable(question: dict[str, Any], most: int) -> str | None:
    """Why a question cannot be asked; None when it can. An answer is checked against all that the question says, so
    all of it, at most `most` bytes, goes with the request."""
    if not fits(question, most):
        return f"A question, with its choices and schema, is {most} bytes at most"
    try:
        check_schema(question.get("schema") or {})
    except ValueError as error:
        return f"The schema of the answer cannot be used: {error}"
    return None


async def no_answer(asked: dict[str, Any], value: Any) -> str | None:
    """Why a value is no answer: it is none of the choices, or does not fit the schema, where the question has them."""
    choices, schema = asked.get("choices"), asked.get("schema")
    if choices and value not in choices:
        return f"the answer must be one of: {', '.join(map(str, choices))}"
    if schema:
        try:
            fault = await misfit_in_time(value, schema)
        except ValueError:  # asked before schemas were checked: any answer is better than none
            return None
        return None if fault is None else f"the answer does not satisfy the schema: {fault}"
    if not choices and not isinstance(value, str):
        return "the answer must be a text"
    return None
