"""Edits of a context, as people write them: for forks, and for runs that are paused."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

KINDS = ("replace", "drop", "append", "tool_result", "goal")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


Index = Annotated[int, Field(ge=0, le=10**9)]
Said = Annotated[str, AfterValidator(_not_blank)]


class _Edit(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Replace(_Edit):
    """Other words in message number `replace`. The calls of an assistant's message stay."""

    replace: Index
    content: Any


class Drop(_Edit):
    """Leaves message number `drop` out, and with calls their answers."""

    drop: Index


class Append(_Edit):
    """A message at the end."""

    append: Literal["user"]
    content: Said


class ToolResult(_Edit):
    """Another answer to a call; the call is settled by it, if it was not."""

    tool_result: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    content: Any


class Goal(_Edit):
    """Another goal. The inputs that were given with the old one stay."""

    goal: Said


def _kind(value: Any) -> str | None:
    if isinstance(value, dict):
        return next((kind for kind in KINDS if kind in value), None)
    return next((kind for kind in KINDS if isinstance(value, BaseModel) and kind in type(value).model_fields), None)


Edit = Annotated[
    Annotated[Replace, Tag("replace")]
    | Annotated[Drop, Tag("drop")]
    | Annotated[Append, Tag("append")]
    | Annotated[ToolResult, Tag("tool_result")]
    | Annotated[Goal, Tag("goal")],
    Discriminator(
        _kind,
        custom_error_type="edit",
        custom_error_message=f"an edit has one of {', '.join(KINDS)}",
    ),
]
Edits = Annotated[list[Edit], Field(max_length=1000)]
