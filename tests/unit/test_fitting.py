"""What people are shown can be read by the plain CLI and the Web UI, however much is asked at once."""

import json
import shlex
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter

from workers.client import WORKER_DATA_CONVERTER
from workers.storage import THRESHOLD
from workflows.agent_run import AgentRun
from workflows.child_records import REPORTED, ChildReport
from workflows.display import details
from workflows.lineage import Child, Limits
from workflows.messages import parse
from workflows.project_board import board, pending_views
from workflows.project_records import ProjectOpening
from workflows.project_state import ProjectState
from workflows.records import BundleRef, Call, Head, Opening
from workflows.requests import Request
from workflows.state import RunState

RUN = "run's 83"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HEAD = Head(branch="b", sequence=3, sha256="0" * 64)
BUNDLE = BundleRef(name="writer", version="1", digest="0")


def approval(number: int, content: str) -> Request:
    name = f"run-83.a:write_file:{number}"
    arguments = {"path": f"{number}.txt", "content": content}
    call = Call(id=f"1.{number}", tool="write_file", decision="ask", operation_id=name, arguments=arguments)
    return Request(code=f"A{number:03}", kind="approval", question="May it?", asked_at=NOW, call=call)


def question(number: int, text: str, choice: str) -> Request:
    arguments = {"question": text, "choices": [choice]}
    call = Call(id=f"1.{number}", tool="ask_human", decision="question", arguments=arguments)
    return Request(code=f"A{number:03}", kind="question", question=text, asked_at=NOW, call=call)


def state_of(requests: list[Request]) -> RunState:
    opening = Opening(
        thread="run-83.a", goal="write", bundle=BUNDLE, versions={}, limits=Limits(), head=HEAD, budget_wait=1
    )
    state = RunState(branch="b", opening=opening, head=HEAD)
    for each in requests:
        state.requests.add(each)
    return state


def pending(monkeypatch: pytest.MonkeyPatch, state: RunState, wanted: dict[str, Any] | None = None) -> Any:
    """The query's answer, once its length as the worker sends it was looked at."""
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id=RUN))
    run = object.__new__(AgentRun)
    run.state = state
    data = json.dumps(wanted).encode()
    given = [] if wanted is None else [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))]
    items = run.pending(*given)
    assert sent(items) < THRESHOLD
    return items


def sent(value: Any) -> int:
    """Bytes, with some for what the SDK adds to Current Details of its own."""
    converter = (
        PayloadConverter.default if isinstance(value, WorkflowMetadata) else WORKER_DATA_CONVERTER.payload_converter
    )
    return len(converter.to_payloads([value])[0].data) + 32 * 1024


def decides(line: str, name: str, code: str) -> bool:
    """Whether a run takes a shown line as that decision."""
    words = shlex.split(line)
    payload = Payload(metadata={"encoding": b"json/plain"}, data=words[9].encode())
    message: Any = parse(words[7], words[5], [RawValue(payload)])
    return (words[5], words[7], message.code) == (RUN, name, code)


LARGE = {
    "32 files of 16 kB": [approval(number, "x" * 16_300) for number in range(32)],
    "20 in Chinese": [approval(number, "中" * 5_400) for number in range(20)],
    "24 with a choice of apostrophes": [question(number, "Which?", "'" * 15_000) for number in range(24)],
    "50 questions in emoji": [question(number, "🙂" * 4_000, "🙂") for number in range(50)],
    "50 of all": [question(number, "🙂" * 2_000, "'" * 480) for number in range(50)],
}


@pytest.mark.parametrize("requests", LARGE.values(), ids=LARGE)
def test_every_request_is_shown_with_its_commands_in_an_answer_that_can_be_read(
    requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_of(requests)
    items = pending(monkeypatch, state)
    shown = details(state, RUN, "waiting")
    assert sent(WorkflowMetadata(current_details=shown)) < THRESHOLD
    assert [item["code"] for item in items] == [each.code for each in requests]
    for item, request in zip(items, requests, strict=True):
        assert item["kind"] == request.kind
        assert f"### {request.kind} {request.code}" in shown
        assert set(item["commands"]) == ({"answer"} if request.kind == "question" else {"approve", "deny"})
        for name, line in item["commands"].items():
            assert decides(line, name, request.code)
        assert item["operation_id"] is None or item["operation_id"] in shown
    in_details = [line for line in shown.splitlines() if line.startswith("temporal ")]
    for request in requests:
        name = "answer" if request.kind == "question" else "approve"
        assert [line for line in in_details if decides(line, name, request.code)]
    assert all(isinstance(item["arguments"], str) and item["arguments_at"] for item in items)
    [one] = pending(monkeypatch, state, {"code": requests[7].code.lower()})
    assert requests[7].call is not None
    assert one["arguments"] == requests[7].call.arguments, "asked for alone it is whole"


def test_what_can_be_read_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [*(approval(number, "x" * 14_000) for number in range(18)), question(18, "Which?", "'" * 1000)]
    items = pending(monkeypatch, state_of(requests))
    assert [item["arguments"] for item in items] == [each.call and each.call.arguments for each in requests]
    assert not any(item["arguments_at"] for item in items)
    assert "'" * 1000 in shlex.split(items[-1]["commands"]["answer"])[-1]


@pytest.mark.parametrize("wanted", [{"code": 5}, {"code": None}, {"codes": "A"}, {"skip": "A"}])
def test_a_query_for_something_else_says_what_it_takes(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r'\{"code": "K7Q2"\}'):
        pending(monkeypatch, state_of([]), wanted)


def asked_by_kids(state: RunState | ProjectState, requests: list[Request], text: str) -> None:
    """What children ask, in reports as long as they may be, with a field that this release does not know."""
    for number in range(0, len(requests), REPORTED):
        kid = f"kid-{number}"
        state.family.adopt(kid, Child(workflow_id=kid, run="r"))
        asked = [
            {"code": each.code, "kind": each.kind, "question": text, "asked_at": "now", "owner": RUN}
            | {"arguments": "'" * 2_000, "reason": text, "later": "x" * 5_000, "commands": {}}
            for each in requests[number : number + REPORTED]
        ]
        state.family.file(ChildReport.model_validate({"child": kid, "pending": asked}))


def test_what_children_ask_is_shown_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [approval(number, "") for number in range(60)]
    state = state_of([])
    asked_by_kids(state, requests, "中" * 5_000)
    items = [*pending(monkeypatch, state, {"skip": 0}), *pending(monkeypatch, state, {"skip": 50})]
    assert [item["code"] for item in items] == [each.code for each in requests]
    assert all(decides(item["commands"]["deny"], "deny", item["code"]) for item in items)
    shown = details(state, RUN, "waiting")
    assert sent(WorkflowMetadata(current_details=shown)) < THRESHOLD
    assert all(f"approval {each.code} of a sub-agent" in shown for each in requests[:20])


def test_a_report_to_the_parent_can_be_read_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id=RUN, run_id="r"))
    told: list[Any] = []

    async def signal(name: str, report: Any) -> None:
        told.append(report)

    monkeypatch.setattr(workflow, "get_external_workflow_handle", lambda _: SimpleNamespace(signal=signal))
    run = object.__new__(AgentRun)
    run.state = state_of(LARGE["24 with a choice of apostrophes"])
    assert run.state.opening is not None
    parent = cast("Any", SimpleNamespace(workflow_id="boss"))
    run.state.opening = run.state.opening.model_copy(update={"parent": parent})
    with pytest.raises(StopIteration):
        run._tell_parent().send(None)
    [report] = told
    assert len(json.dumps(report)) < THRESHOLD
    assert len(ChildReport.model_validate(report).pending) == REPORTED


def test_a_project_shows_all_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    opening = cast("ProjectOpening", SimpleNamespace(brief=SimpleNamespace(preview="make it"), parent=None))
    project = ProjectState(branch="b").model_copy(update={"opening": opening})
    own = [
        Request(
            code=f"A{n:03}", kind="question", question="中" * 9_000, asked_at=NOW, task="T", choices=["accept", "drop"]
        )
        for n in range(12)
    ]
    for each in own:
        project.requests.add(each)
    kids = [approval(number, "") for number in range(100, 120)]
    asked_by_kids(project, kids, "中" * 5_000)
    items, shown = pending_views(project, RUN, ended=False), board(project, RUN, "waiting")
    assert sent(items) < THRESHOLD
    assert sent(WorkflowMetadata(current_details=shown)) < THRESHOLD
    assert [item["code"] for item in items] == [each.code for each in own + kids]
    assert all(set(item["commands"]) == {"answer", "drop"} for item in items[:12])
    assert all(each.code in shown for each in own + kids)
    assert [item["code"] for item in pending_views(project, RUN, ended=True)] == [each.code for each in kids]
