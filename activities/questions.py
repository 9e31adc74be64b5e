"""What an agent may ask people, and what is an answer to it."""

from typing import Any

from activities.canonical import fits
from activities.schemas import check_schema, misfit_in_time
from workflows.examples import example_of


async def unaskable(question: dict[str, Any], most: int) -> str | None:
    """Why a question cannot be asked; None when it can. An answer is checked against all that the question says, so
    all of it, at most `most` bytes, goes with the request. What people are shown is a command that they may send as it
    is: so there must be an answer that can be made up, or that the question gives."""
    if not fits(question, most):
        return f"A question, with its choices and schema, is {most} bytes at most"
    try:
        check_schema(question.get("schema") or {})
    except ValueError as error:
        return f"The schema of the answer cannot be used: {error}"
    choices, schema = question.get("choices"), question.get("schema")
    for choice in (choices or ()) if schema else ():
        if (fault := await misfit_in_time(choice, schema)) is not None:
            return f"The choice {choice!r} is no answer, since it does not satisfy the schema: {fault}"
    if schema and not choices and (fault := await misfit_in_time(example_of(schema), schema)) is not None:
        return (
            f"No answer to the schema could be made up ({fault}): put one that satisfies it into its `examples`, so "
            "that people see what is wanted"
        )
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
    if not choices and not (isinstance(value, str) and value.strip()):
        return "the answer must be a text, and not an empty one"
    return None
