from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from activities.tools import (
    Operation,
    Registry,
    ToolDeclarationError,
    ToolError,
    ToolLoadError,
    UnknownTool,
    load_tools,
    tool,
)
from activities.tools.bodies import to_text


class Order(BaseModel):
    number: int


def operation(**given: Any) -> Operation:
    return Operation(**{"operation_id": "run.1:t:1", "tool": "t", "thread": "run.1", "workspace": Path(), **given})


@tool(effect="idempotent", name="crm.refund", key_valid="2d")
def refund(
    order: Order,
    day: datetime.date = datetime.date(2026, 1, 2),
    schema: Annotated[str, Field(description="what it is", max_length=3)] = "abc",
    *,
    op: Operation,
) -> str:
    """Refund an order.

    Args:
        order: the order
            to refund
        day: when

    Returns:
        a number
    """
    return f"{order.number} {day} {schema} {op.tool}"


def test_the_signature_and_the_docstring_make_the_schema() -> None:
    properties = refund.schema["properties"]
    assert list(properties) == ["order", "day", "schema"]
    assert refund.schema["required"] == ["order"]
    assert refund.schema["additionalProperties"] is False
    assert properties["order"]["description"] == "the order to refund"
    assert properties["schema"]["description"] == "what it is"
    assert "title" not in properties["day"]
    assert refund.description == "Refund an order.\n\nReturns:\n    a number"
    assert (refund.wire_name, refund.key_valid, refund.takes_op, refund.is_async) == (
        "crm__refund",
        172800,
        True,
        False,
    )


def test_arguments_are_coerced_filled_in_and_made_canonical() -> None:
    bound = refund.bind({"order": {"number": "7"}})
    assert bound == {"order": Order(number=7), "day": datetime.date(2026, 1, 2), "schema": "abc"}
    assert refund(**bound, op=operation()) == "7 2026-01-02 abc t"
    assert refund.canonical({"order": {"number": "7"}}) == {
        "order": {"number": 7},
        "day": "2026-01-02",
        "schema": "abc",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"order": 1},
        {"order": {"number": 1}, "more": 1},
        {"order": {"number": 1}, "schema": "abcd"},
        {"order": {"number": 1}, "op": 1},
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        refund.bind(arguments)


def test_infinity_is_no_argument() -> None:
    @tool(effect="read")
    def weigh(grams: float) -> None: ...

    with pytest.raises(ValidationError):
        weigh.canonical({"grams": float("inf")})


def test_a_result_is_revived_for_its_compensation() -> None:
    @tool(effect="once")
    def make(name: str) -> Order:
        return Order(number=1)

    @make.compensate
    def unmake(op: Operation, result: Order) -> None: ...

    assert make.revive(to_text(Order(number=4))[0]) == Order(number=4)


def untyped(x) -> None: ...  # type: ignore[no-untyped-def]
def many(*x: int) -> None: ...
def keywords(**x: int) -> None: ...
def positional(x: int, /) -> None: ...
def hidden(op: str) -> None: ...
def elsewhere(context: Operation) -> None: ...
def opaque(x: object = pytest) -> None: ...
def unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def fine(x: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "declared", "said"),
    [
        (fine, {}, "effect"),
        (fine, {"effect": "safe"}, "effect"),
        (fine, {"effect": "once", "local": True}, "local"),
        (fine, {"effect": "read", "on_unknown": "retry"}, "on_unknown"),
        (fine, {"effect": "once", "on_unknown": "hope"}, "on_unknown"),
        (fine, {"effect": "read", "name": "two words"}, "name"),
        (fine, {"effect": "read", "name": "a" * 65}, "name"),
        (fine, {"effect": "read", "name": "." * 40}, "name"),
        (fine, {"effect": "read", "timeout": 0}, "timeout"),
        (fine, {"effect": "idempotent", "key_valid": "soon"}, "key_valid"),
        (untyped, {"effect": "read"}, "no type"),
        (many, {"effect": "read"}, "any number"),
        (keywords, {"effect": "read"}, "any number"),
        (positional, {"effect": "read"}, "positional"),
        (hidden, {"effect": "read"}, "Operation"),
        (elsewhere, {"effect": "read"}, "call it `op`"),
        (unknown, {"effect": "read"}, "module level"),
    ],
)
def test_a_wrong_declaration_says_what_to_do(fn: Any, declared: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolDeclarationError, match=said):
        tool(**declared)(fn)


def test_the_bare_decorator_is_a_wrong_declaration() -> None:
    with pytest.raises(ToolDeclarationError, match="fine declares no valid effect"):
        tool(fine)


def test_a_lookup_and_a_compensation_have_their_own_parameters() -> None:
    declared = tool(effect="once")(fine)
    with pytest.raises(ToolDeclarationError, match="lookup"):
        declared.lookup(lambda: None)
    with pytest.raises(ToolDeclarationError, match="compensate"):
        declared.compensate(lambda op: None)


def test_one_name_is_one_tool_in_both_its_forms() -> None:
    registry = Registry([refund, refund])
    assert registry.get("crm.refund") is registry.get("crm__refund") is refund
    with pytest.raises(ToolDeclarationError, match="crm__refund"):
        registry.add(tool(effect="read", name="crm__refund")(fine))


def test_globs_may_match_nothing_but_names_must_be_tools() -> None:
    registry = load_tools(["tests.unit.tools.tools_for_tests"])
    assert [found.name for found in registry.match(["*_file", "add", "none*"])] == [
        "add",
        "edit_file",
        "read_file",
        "write_file",
    ]
    with pytest.raises(UnknownTool, match="no tool is called nobody, nothing;"):
        registry.match(["nobody", "add", "nothing"])


def test_shipped_tools_are_what_the_contract_says() -> None:
    effects = {found.name: (found.effect, found.local, found.question) for found in load_tools()}
    assert effects == {
        "ask_human": ("read", False, True),
        "delegate": ("idempotent", False, False),
        "edit_file": ("once", False, False),
        "fetch": ("read", False, False),
        "git_commit": ("once", False, False),
        "git_diff": ("read", False, False),
        "git_log": ("read", False, False),
        "git_restore": ("once", False, False),
        "git_status": ("read", False, False),
        "list_files": ("read", True, False),
        "notify": ("idempotent", False, False),
        "read_file": ("read", True, False),
        "recall": ("read", True, False),
        "remember": ("idempotent", False, False),
        "search_files": ("read", False, False),
        "send_email": ("once", False, False),
        "shell": ("once", False, False),
        "write_file": ("once", False, False),
    }


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_tools_module.py").write_text("1 / 0")
    (tmp_path / "empty_tools_module.py").write_text("")
    for name, said in [
        ("broken_tools_module", "division"),
        ("empty_tools_module", "no tool"),
        ("absent_tools", "PERDURE_TOOLS"),
    ]:
        with pytest.raises(ToolLoadError, match=f"{name}.*{said}"):
            load_tools([name])


async def test_credentials_are_found_by_name_and_never_shown() -> None:
    op = operation(credentials={"CRM_EU": "s3cret"})
    assert await op.credential("crm.eu") == "s3cret"
    assert "s3cret" not in repr(op)
    with pytest.raises(ToolError, match="PERDURE_CREDENTIAL_CRM_US"):
        await op.credential("crm-us")


@pytest.mark.parametrize(
    ("value", "text", "data"),
    [
        ("a\0b\ud800c", "a\ufffdb\ufffdc", None),
        ("\ud83d\ude00", "\U0001f600", None),
        (None, "null", None),
        ({"ä": [1, float("nan")], "o": Order(number=1)}, '{"ä":[1,"nan"],"o":{"number":1}}', None),
        ({"x": "\ud800"}, '{"x":"\ufffd"}', None),
        (Order(number=2), '{"number":2}', None),
        ("grün".encode(), "grün", None),
        (
            b"\0\1",
            "[binary, 2 bytes, sha256 b413f47d13ee2fe6c845b2ee141af81de858df4ec549a58b7970bb96645bc8d2]",
            b"\0\1",
        ),
        (
            b"\xff",
            "[binary, 1 bytes, sha256 a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89]",
            b"\xff",
        ),
    ],
)
def test_results_become_text_that_every_store_takes(value: object, text: str, data: bytes | None) -> None:
    assert to_text(value) == (text, data)


def test_a_result_without_json_is_named() -> None:
    with pytest.raises(ToolError, match="returned a object"):
        to_text(object())
