"""A person's word is about one operation, at one time, and what was said with it is kept as it was given."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activities.compensation import CompensationActivities
from activities.effect_records import Outcome
from activities.entries import Entries
from activities.store import LocalStore
from activities.tools import Operation, ToolError, tool
from tests.unit.effects.stepped import OPERATION, THREAD, World
from workflows.records import Call, Resolution
from workflows.requests import Request, Requests

CALL = Call(id="1.0", tool="pay", decision="ask", operation_id="run-1.a:pay:1")


def asked(requests: Requests, code: str, call: Call) -> Request:
    request = Request(code=code, kind="review", question="?", asked_at=datetime.now(UTC), call=call)
    request.resolution = Resolution(outcome="happened", by="alice", code=code)
    return requests.add(request)


def test_a_word_about_an_operation_is_none_about_the_one_that_the_call_became() -> None:
    requests = Requests()
    word = asked(requests, "AAAA", CALL)
    assert requests.review_of(CALL) is word
    renamed = CALL.model_copy(update={"operation_id": "run-1.a:pay:1~b1"})
    assert requests.review_of(renamed) is None
    newer = asked(requests, "BBBB", renamed)
    assert requests.review_of(renamed) is newer


@pytest.mark.parametrize(("result", "outside"), [({"id": "x-1"}, "x-1"), ("done", None), (None, None)])
def test_a_result_that_a_person_gives_is_recorded_as_the_tool_s_own(result: Any, outside: str | None) -> None:
    world = World("nothing", "once")
    first = world.start("breaks after")
    world.finish(first)
    second = world.start(resolution=Resolution(outcome="happened", result=result, by="alice", code="C1"))
    world.finish(second)
    assert isinstance(second.ended, Outcome)
    assert (second.ended.status, second.ended.external_id) == ("COMMITTED", outside)
    assert second.ended.told == (result is not None)


@tool(effect="once")
async def pay(amount: int, *, op: Operation) -> dict[str, Any]:
    """Pays."""
    return {"id": "x"}


@pay.compensate
async def take_back(op: Operation, result: dict[str, Any]) -> None:
    """Takes it back."""


@pytest.mark.parametrize(
    ("told", "result", "said"),
    [(True, '{"id": "x-1"}', None), (True, "it is done", "not what the undoing goes by"), (False, None, "alice")],
    ids=["given", "given as another thing", "not given"],
)
async def test_an_undoing_goes_by_what_a_person_told_or_says_what_is_missing(
    told: bool, result: str | None, said: str | None, tmp_path: Path
) -> None:
    entries = Entries(LocalStore(tmp_path))
    text = "alice confirmed that this happened."
    body = {"role": "tool", "call": "1.0", "tool": "pay", "text": text} | ({"result": result} if result else {})
    answer = await entries.put(THREAD, body, text)
    outcome = Outcome(
        operation_id=OPERATION,
        status="COMMITTED",
        how="person",
        answer=answer,
        by="alice",
        told=told,
        committed_at="now",
    )
    undoing = CompensationActivities(cast("Any", SimpleNamespace(entries=entries)))
    if said is None:
        assert await undoing._result(pay, THREAD, outcome) == {"id": "x-1"}
        return
    with pytest.raises(ToolError, match=said):
        await undoing._result(pay, THREAD, outcome)
