"""`remember` and `recall`: facts in their own place, and one write for one operation."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from activities.memory import VALUE_BYTES, Memory
from activities.store import Store, open_store
from activities.tools import Operation, ToolError, load_tools
from activities.tools.memory import outside, recall, remember


@pytest.fixture
def store() -> Store:
    return open_store("memory:///")


@pytest.fixture
def op(store: Store) -> Operation:
    return Operation(
        operation_id="run.1:remember:1", tool="remember", thread="run.1", workspace=Path(), memory=Memory(store)
    )


async def test_what_one_run_remembers_another_recalls(op: Operation) -> None:
    await remember("acme", "billing contact", "Ann, since May", op=op)
    other = replace(op, operation_id="run.2:recall:1", idempotency_key="", thread="run.2")
    assert (await recall("acme", "billing contact", op=other)).startswith("Ann, since May\n[remembered at 20")
    assert await recall("acme", op=other) == "billing contact"


async def test_scopes_are_apart(op: Operation, store: Store) -> None:
    await remember("acme", "k", "1", op=op)
    assert "Nothing" in await recall("acme-2", "k", op=op)
    assert "Nothing" in await recall("acm", op=op)
    assert all(key.startswith("memory/") for key in await store.keys(""))


@pytest.mark.parametrize("name", ["../threads/run-1", "a/b", "..", "日本", "x" * 200, "a.b"])
async def test_names_lead_nowhere_else(op: Operation, store: Store, name: str) -> None:
    await remember(name, name, "v", op=op)
    assert (await recall(name, name, op=op)).startswith("v\n")
    assert await recall(name, op=op) == name
    assert all(key.startswith("memory/") and key.count("/") == 3 for key in await store.keys(""))


@pytest.mark.parametrize(("scope", "key"), [("", "k"), ("s", " "), ("x" * 201, "k")])
async def test_empty_and_long_names_are_refused(op: Operation, scope: str, key: str) -> None:
    with pytest.raises(ToolError, match="characters"):
        await remember(scope, key, "v", op=op)


async def test_a_long_value_is_refused_with_a_remedy(op: Operation) -> None:
    with pytest.raises(ToolError, match="write a file"):
        await remember("s", "k", "x" * (VALUE_BYTES + 1), op=op)


async def test_an_attempt_that_comes_again_writes_nothing_and_does_not_undo_what_came_after(op: Operation) -> None:
    later = replace(op, operation_id="run.2:remember:1", idempotency_key="")
    await remember("s", "k", "first", op=op)
    await remember("s", "k", "second", op=later)
    said = await remember("s", "k", "first", op=op)
    assert "version 1" in said
    assert (await recall("s", "k", op=op)).startswith("second")


async def test_the_tenth_version_comes_after_the_ninth(op: Operation) -> None:
    for number in range(12):
        each = replace(op, operation_id=f"run.1:remember:{number}", idempotency_key="")
        await remember("s", "k", f"value {number}", op=each)
    assert (await recall("s", "k", op=op)).startswith("value 11\n")


def test_a_bundle_may_name_the_scopes() -> None:
    assert outside({"scope": "team-a"}, {}) is None
    assert outside({"scope": "team-a"}, {"scopes": ["team-*"]}) is None
    assert "other" in (outside({"scope": "other"}, {"scopes": ["team-*"]}) or "")


def test_the_tools_are_shipped_and_memory_does_not_leave_the_process(op: Operation) -> None:
    registry = load_tools()
    assert "remember" in registry
    assert "recall" in registry
    assert pickle.loads(pickle.dumps(op)).memory is None  # noqa: S301
    assert "Memory" not in repr(op)
