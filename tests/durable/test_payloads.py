"""What was recorded is read by today's models, and what is written today by those of the last release."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory

from tests.durable.corpus import HISTORIES, read
from tests.durable.schemas import DURABLE, schema_of
from tests.durable.test_schemas import Old, changed
from workflows import catalog
from workflows.project_state import ProjectState
from workflows.rollover import CARRIED
from workflows.state import RunState

COMMANDS = {each.name: each for each in vars(catalog).values() if isinstance(each, catalog.Command)}
STATES = {"AgentRun": RunState, "ProjectRun": ProjectState}
PATHS = sorted(HISTORIES.glob("*/*.json"))


def payloads(history: WorkflowHistory) -> Iterator[tuple[Any, Payload]]:
    """What a history holds for our models: inputs and results of activities, and the state that a rollover carries."""
    asked: dict[int, Any] = {}
    for event in history.events:
        kind = event.WhichOneof("attributes") or ""
        body: Any = getattr(event, kind)
        if kind == "activity_task_scheduled_event_attributes":
            asked[event.event_id] = COMMANDS[body.activity_type.name]
            yield asked[event.event_id].takes, body.input.payloads[0]
        elif kind == "activity_task_completed_event_attributes":
            yield asked[body.scheduled_event_id].gives, body.result.payloads[0]
        elif kind == "marker_recorded_event_attributes" and "result" in body.details:
            name = json.loads(body.details["data"].payloads[0].data)["activity_type"]
            yield COMMANDS[name].gives, body.details["result"].payloads[0]
        elif kind == "workflow_execution_continued_as_new_event_attributes":
            state = json.loads(body.input.payloads[0].data)[CARRIED]
            yield STATES[body.workflow_type.name], Payload(data=json.dumps(state).encode())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.stem))
def test_recorded_payloads_decode_under_todays_models(path: Path) -> None:
    found = [TypeAdapter(model).validate_json(payload.data) for model, payload in payloads(read(path))]
    assert found or path.stem.startswith("refused")


def test_the_recorded_payloads_are_of_many_models() -> None:
    models = {getattr(model, "__name__", "") for path in PATHS for model, _ in payloads(read(path))}
    carried = {"RunState", "ProjectState"}
    assert models >= {*carried, "Opening", "TurnRequest", "Turn", "ToolRequest", "ToolAnswer", "Handoff", "Forked"}


@pytest.mark.parametrize("model", DURABLE, ids=lambda model: str(model.__name__))
def test_readers_tolerate_fields_that_they_do_not_know(model: type[BaseModel]) -> None:
    """A bundle's file refuses them where a person wrote it; the stored manifest is read without that."""
    if model.__name__ != "Manifest":
        assert '"additionalProperties": false' not in json.dumps(schema_of(model))


def test_what_a_release_with_one_more_field_writes_is_read_by_the_last_one() -> None:
    newer = changed(added=(str, "by default"))
    written = newer.model_validate({"name": "n", "added": "new", "notes": [{"kind": "b"}]}).model_dump_json()
    assert Old.model_validate_json(written) == Old.model_validate({"name": "n", "notes": [{"kind": "b"}]})
