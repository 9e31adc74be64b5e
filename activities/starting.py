"""Reading the input of a run or of a project."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from temporalio.common import RawValue

from activities.errors import InvalidInput
from workflows.messages import decode_json, explain, type_name
from workflows.project_records import ProjectRequest
from workflows.records import OpenRequest

M = TypeVar("M", bound=BaseModel)


def read_start(
    request: OpenRequest | ProjectRequest,
    payload: RawValue,
    model: type[M],
    plain: str,
    check: Callable[[M], None],
    example: str,
) -> M:
    """The input as `model`; a JSON string is its field `plain`. Raises InvalidInput that names the field, also where
    `check` raises ValueError, with the `example` of a start."""
    try:
        if request.cron:
            raise ValueError("a cron schedule is not supported: use a Schedule (temporal schedule create)")
        if request.payloads != 1:
            raise ValueError(f"one input is wanted, {request.payloads} were given")
        value = decode_json(payload)
        if isinstance(value, str):
            value = {plain: value}
        if not isinstance(value, dict):
            raise ValueError(f"a {plain} (string) or an object is wanted, not {type_name(value)}")
        wanted = model.model_validate(value)
        check(wanted)
        return wanted
    except ValidationError as error:
        reason = explain(error)
    except ValueError as error:
        reason = str(error)
    raise InvalidInput(f"{reason}. Start it like this: {example}")
