"""From a function's signature to the JSON Schema and the validation of its arguments."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from activities.tools.errors import ToolDeclarationError
from activities.tools.operation import Operation

# Fields of a pydantic model may not be called `schema`, `copy` or `_x`; arguments may. So a field has a prefix and the
# argument's name is its alias.
_PREFIX = "arg_"
_SECTION = re.compile(r"(?m)^(Args|Arguments|Parameters|Returns|Raises|Yields):\s*$")
_ENTRY = re.compile(r"(?m)^    (\w+)(?:\s*\([^)]*\))?:[ \t]*(.+(?:\n {5,}.+)*)")


class _Untitled(GenerateJsonSchema):
    """Titles repeat the names, and every request to a model pays for them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True)
class Arguments:
    """The arguments of one tool: their JSON Schema, and their validation."""

    model: type[BaseModel]
    schema: dict[str, Any]

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments. Raises `pydantic.ValidationError`."""
        # As JSON, because that is what a model sent: a strict field takes a date as text in JSON only.
        bound = self.model.model_validate_json(json.dumps(arguments))
        return {name.removeprefix(_PREFIX): getattr(bound, name) for name in self.model.model_fields}

    def canonical(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """JSON values, defaults filled in. Raises `pydantic.ValidationError`."""
        return self.model.model_validate_json(json.dumps(arguments)).model_dump(mode="json", by_alias=True)


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters with their annotations resolved. Raises `ToolDeclarationError`."""
    try:
        hints = get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise ToolDeclarationError(
            f"{fn.__qualname__} in {fn.__module__} has an annotation that cannot be resolved ({error});"
            " import or define the type at module level, not under TYPE_CHECKING"
        ) from error
    return [
        parameter.replace(annotation=hints.get(parameter.name, inspect.Parameter.empty))
        for parameter in inspect.signature(fn).parameters.values()
    ]


def arguments_of(name: str, parameters: list[inspect.Parameter], notes: dict[str, str]) -> Arguments:
    """The arguments of the tool `name`, `op` left out. `notes` describe them. Raises `ToolDeclarationError`."""
    fields: dict[str, Any] = {}
    for parameter in parameters:
        _check(name, parameter)
        if parameter.name != "op":
            fields[_PREFIX + parameter.name] = (parameter.annotation, _field(parameter, notes))
    config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True, arbitrary_types_allowed=False)
    try:
        model = create_model(name.replace(".", "_"), __config__=config, **fields)
        schema = model.model_json_schema(by_alias=True, schema_generator=_Untitled)
    except (PydanticUserError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ToolDeclarationError(
            f"the tool {name!r} has a parameter that JSON cannot carry ({reason});"
            " use JSON-able types or pydantic models, and JSON-able defaults"
        ) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return Arguments(model, schema)


def described(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring without its section of arguments, and the notes on arguments found there."""
    text = inspect.getdoc(fn) or ""
    parts = _SECTION.split(text)
    kept, notes = [parts[0].rstrip()], {}
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title in ("Args", "Arguments", "Parameters"):
            notes.update({name: " ".join(note.split()) for name, note in _ENTRY.findall(body)})
        else:
            kept.append(f"{title}:{body}".rstrip())
    return "\n\n".join(part for part in kept if part), notes


def _field(parameter: inspect.Parameter, notes: dict[str, str]) -> FieldInfo:
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    # Not `description=None`: that would hide the description of an Annotated field.
    note = notes.get(parameter.name)
    made = Field(default, alias=parameter.name, description=note) if note else Field(default, alias=parameter.name)
    return cast(FieldInfo, made)


def _check(name: str, parameter: inspect.Parameter) -> None:
    problem = None
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        problem = "takes any number of values; a model needs named, typed arguments: declare each"
    elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        problem = "is positional only; arguments are given by name: remove the slash"
    elif parameter.name == "op" and parameter.annotation is not Operation:
        problem = "must be annotated `Operation`: the name `op` is kept for it"
    elif parameter.name != "op" and parameter.annotation is Operation:
        problem = "is an Operation; call it `op`"
    elif parameter.annotation is inspect.Parameter.empty:
        problem = "has no type; annotate it"
    if problem:
        raise ToolDeclarationError(f"the parameter {parameter.name!r} of the tool {name!r} {problem}")
