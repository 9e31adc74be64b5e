"""What stands on a span, and what only by opt-in."""

from dataclasses import replace

from activities.errors import ModelTrouble
from workers.steps import Step
from workers.tracing import attributes_of, name_of
from workflows.catalog import MODEL_TURN, TOOL_RUN
from workflows.records import Call, Head, Ref, ToolAnswer, ToolRequest, Turn

HEAD = Head(branch="b", sequence=4, sha256="")
CALL = Call(id="4.0", tool="crm.find", decision="allow", arguments={"order": "SECRET-1"})
TURN = Step(MODEL_TURN.name, "run", "r", 1, 0, 1, result=Turn(head=HEAD, kind="answer", model="m", text="SECRET-2"))
TOOL = Step(
    TOOL_RUN.name,
    *("run", "r", 2, 0, 1),
    request=ToolRequest(thread="t", branch="b", head=HEAD, bundle="", call=CALL),
    result=ToolAnswer(status="done", answer=Ref(sha256="", bytes=1, preview="SECRET-3")),
)


def test_what_was_said_is_on_a_span_only_by_opt_in() -> None:
    for step, secrets in ((TURN, ["SECRET-2"]), (TOOL, ["SECRET-1", "SECRET-3"])):
        silent, told = str(attributes_of(step, content=False)), str(attributes_of(step, content=True))
        assert "SECRET" not in silent
        assert [secret for secret in secrets if secret not in told] == []


def test_names_and_attributes_are_those_of_the_conventions() -> None:
    assert (name_of(TURN), name_of(TOOL)) == ("chat m", "execute_tool crm.find")
    found = attributes_of(TOOL, content=False)
    assert {name: found[name] for name in found if name.startswith("gen_ai.")} == {
        "gen_ai.conversation.id": "run",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "crm.find",
        "gen_ai.tool.call.id": "4.0",
        "gen_ai.tool.type": "function",
    }
    assert (found["perdure.turn"], found["perdure.attempt"]) == (4, 2)
    asked = replace(TURN, notes={"model": "asked"})
    assert name_of(asked) == "chat asked", "a server may answer by another name"
    told = attributes_of(asked, content=False)
    assert (told["gen_ai.request.model"], told["gen_ai.response.model"]) == ("asked", "m")
    failed = Step(MODEL_TURN.name, "run", "r", 1, 0, 1, error=ModelTrouble("the text of it"))
    assert attributes_of(failed, content=True)["error.type"] == "ModelTrouble"
    assert "the text of it" not in str(attributes_of(failed, content=True))
