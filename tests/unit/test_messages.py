"""The readers of what people send, without a run: strictness, names, requests, the log, and what is shown."""

import contextlib
import json
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.opening import person_of
from activities.schemas import misfit
from workflows.display import _abandoned, enough, fenced
from workflows.examples import example_of
from workflows.messages import BLANK, Approve, Budget, Deny, MessageError, Resolve, UserMessage, command, loads, parse
from workflows.records import Call, EffectRecord
from workflows.requests import KEPT, Logged, Request, Requests, commands, decision_digest, shown

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yes", "NaN", '{"a": NaN}', "Infinity", "-Infinity", "1e999", '{"a": 1, "a": 2}', '"\\ud800"'),
        *('{"\\udfff": 1}', "[" * 65 + "]" * 65, "[" * 100_000, "9" * 5000, "\ufeff{}", "{'a': 1}", '{"a": 1,}', "01"),
    ],
)
def test_what_is_not_strictly_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


@settings(deadline=None, max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        st.lists,
    )
)
def test_what_is_json_is_read_as_it_is(value: Any) -> None:
    assert loads(json.dumps(value)) == value


@settings(deadline=None, max_examples=50)
@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    with contextlib.suppress(ValueError):
        json.dumps(loads(text), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\x1b[31m", "\u200b", "a\u202eb", "\u200d", "x" * 201, "\ufeffa", "a\x00"]
)
def test_a_name_that_cannot_be_told_from_another_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        UserMessage(by=name, text="x")


@pytest.mark.parametrize("name", ["alice", "O'Neil", "日本 太郎", "Zoë 🙂", "👩‍👩‍👧", "a@b.example"])
def test_names_of_people_pass(name: str) -> None:
    assert UserMessage(by=f" {name} ", text="x").by == name


@pytest.mark.parametrize("name", ["bob\u200d", "bo\u200db", "\u200cbob", "bob\u00ad", "👩\u200d"])
def test_a_name_that_could_pass_for_another_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be seen"):
        UserMessage(by=name, text="x")


@pytest.mark.parametrize(
    "name", ["bob\ufe0f", "bo\u034fb", "\u3164", "\u2800", "bob\U000e0041", "bob\u00a0lee", "日\ufe0f", "\u1160bob"]
)
def test_a_name_with_blanks_fillers_or_tags_is_told_apart(name: str) -> None:
    assert BLANK.search(name)


@pytest.mark.parametrize("name", ["bob lee", "O'Neil", "日本 太郎", "Zoë 🙂", "👩‍👩‍👧", "Ann ❤️", "☎️"])
def test_names_of_people_hold_nothing_that_is_blank(name: str) -> None:
    assert not BLANK.search(name)


@settings(deadline=None, max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
@example("run \x1b]0;x\x07 it's \\ \u202e \x7f")
def test_a_command_for_any_workflow_id_is_printable_and_means_it_under_bash(workflow_id: str) -> None:
    line = command(workflow_id, "pause", {"by": "a"})
    assert line.isprintable()
    bash = ["bash", "-c", f'temporal() {{ printf %s "$5"; }}; {line}']
    assert subprocess.run(bash, capture_output=True, check=True).stdout.decode() == workflow_id


def test_an_effect_of_a_left_path_is_shown_inside_of_a_block() -> None:
    effect = EffectRecord(
        operation_id="`run`\n# heading:pay:1", tool="pay", effect="once", status="COMMITTED", external_id="\n# approved"
    )
    text = _abandoned([effect], "run", "run")
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)
    assert outside.strip() == "### Effects of a path that was left by a reset: 1"


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ("temporal-cli:ann@laptop", "ann"),
        ("temporal-cli:a@b@host", "a@b"),
        ("carol", "carol"),
        ("123@host", "123@host"),
    ],
)
def test_who_started_a_run_by_the_cli_is_known_by_name(identity: str, name: str) -> None:
    assert person_of(identity) == name


def test_a_rejection_is_short_whatever_was_sent() -> None:
    for body in ({"k" * 1_000_000: 1}, {"by": "a", "code": "x" * 1_000_000}, {"by": {"y" * 1_000_000: 1}}):
        with pytest.raises(MessageError) as refused:
            parse(
                "approve",
                "run-83",
                [RawValue(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(body).encode()))],
            )
        assert len(str(refused.value)) < 2_000
        assert "--name approve" in str(refused.value)


def test_a_command_holds_nothing_that_rules_a_terminal_and_says_the_same() -> None:
    text = "it's \x9b31m \u202eab \u2028 \x7f 日本 🙂 \U000e0041"
    line = command("run-83", "answer", {"code": "K7Q2", "value": text, "by": "a"})
    assert line.isprintable()
    assert json.loads(shlex.split(line)[-1])["value"] == text


@pytest.mark.parametrize("limit", [-1, True, "5", 10**16, float("inf"), float("nan"), 1.5])
def test_a_limit_is_a_number_that_can_be_counted_to(limit: Any) -> None:
    with pytest.raises(ValidationError):
        Budget(by="a", turns=limit)
    if limit != 1.5:
        with pytest.raises(ValidationError):
            Budget(by="a", cost_usd=limit)


def test_a_result_is_short() -> None:
    with pytest.raises(ValidationError, match="longer than"):
        Resolve(by="a", code="K7Q2", outcome="happened", result="x" * 20_000)


def request(code: str = "K7Q2", **more: Any) -> Request:
    call = Call(
        id="1.0", tool="pay", decision="ask", arguments={"amount": 5}, request_digest="d", operation_id="t:pay:1"
    )
    return Request(code=code, kind="approval", question="?", asked_at=NOW, call=call, **more)


def test_the_first_decision_wins_and_its_repetition_is_told_apart_from_another() -> None:
    requests = Requests()
    asked = requests.add(request())
    found, repeats = requests.check(Approve(by="a", code="k7q2"), NOW, "w")
    assert (found, repeats) == (asked, False)
    asked.outcome, asked.by, asked.digest = "approved", "a", decision_digest(Approve(by="a", code="K7Q2", note="x"))
    assert requests.check(Approve(by="b", code="K7Q2", note="y"), NOW, "w") == (asked, True)
    for other in (Deny(by="a", code="K7Q2"), Approve(by="a", code="K7Q2", arguments={"amount": 5})):
        with pytest.raises(MessageError, match="already approved by a"):
            requests.check(other, NOW, "w")


def test_the_deadline_itself_is_too_late() -> None:
    requests = Requests()
    requests.add(request(deadline=NOW))
    assert requests.check(Approve(by="a", code="K7Q2"), NOW - timedelta(microseconds=1), "w")[1] is False
    with pytest.raises(MessageError, match="expired at"):
        requests.check(Approve(by="a", code="K7Q2"), NOW, "w")


def test_requests_of_the_turn_at_hand_are_kept_however_many_there_are() -> None:
    requests = Requests()
    for number in range(KEPT * 2):
        requests.add(request(f"C{number}", outcome="approved"))
    assert len(requests.by_code) == KEPT * 2
    requests.settle()
    assert list(requests.by_code) == [f"C{number}" for number in range(KEPT, KEPT * 2)]
    assert all(each.call and each.call.arguments is None for each in requests.by_code.values())


def test_a_flood_of_bad_messages_pushes_no_decision_out_of_the_log() -> None:
    requests = Requests()

    def note(decision: str) -> None:
        requests.note(Logged(code=None, kind=None, operation_id=None, decision=decision, by=None, source={}, at=NOW))

    for _ in range(30):
        note("approved")
    for _ in range(1000):
        note("rejected")
    kept = [entry.decision for entry in requests.log]
    assert (len(kept), kept.count("approved"), requests.logged) == (KEPT, 30, 1030)
    for _ in range(45):
        note("denied")
    kept = [entry.decision for entry in requests.log]
    assert kept[-45:] == ["denied"] * 45


def test_what_the_log_keeps_is_short() -> None:
    assert shown({"a": 1}) == {"a": 1}
    assert len(shown({"a": "é" * 100_000})) == 2000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3},
        {"type": "number", "exclusiveMinimum": 2.5},
        {"type": "boolean"},
        {"type": "string", "minLength": 20},
        {"type": "string", "maxLength": 3},
        {"enum": ["x", "y"]},
        {"const": {"a": 1}},
        {"type": ["null", "string"]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array", "items": {"type": "integer"}, "minItems": 12},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {
            "$defs": {"n": {"type": "integer", "minimum": 7}},
            "type": "array",
            "items": {"$ref": "#/$defs/n"},
            "minItems": 1,
        },
        {"type": "integer", "multipleOf": 5, "minimum": 12},
        {
            "type": "object",
            "properties": {"a": {"type": "array"}, "b": {"type": "object", "required": ["c"]}, "d": {}},
            "required": ["a", "b"],
        },
    ],
)
def test_the_example_in_a_command_fits_the_schema(schema: dict[str, Any]) -> None:
    assert misfit(example_of(schema), schema) is None


@pytest.mark.parametrize(
    "schema", [None, [], 5, {"type": 5}, {"enum": []}, {"anyOf": []}, {"required": 5, "type": "object"}]
)
def test_a_broken_schema_still_has_an_example(schema: Any) -> None:
    json.dumps(example_of(schema))


def test_an_example_is_small_whatever_the_schema_refers_to() -> None:
    every = {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 50}
    circle = {"type": "object", "required": list("xyz"), "properties": {name: {"$ref": "#"} for name in "xyz"}}
    for schema in (
        {"$defs": {"a": every}, **every},
        circle,
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://a"},
    ):
        assert len(json.dumps(example_of(schema))) < 10_000


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="`~ab\n# "))
def test_no_text_breaks_out_of_its_block(text: str) -> None:
    first, *inside, last = fenced(text).split("\n")
    assert first == f"{last}text"
    assert "\n".join(inside) == text
    assert not any(line.strip().startswith(last) for line in inside)


@given(
    st.dictionaries(st.sampled_from(["turns", "tokens", "tool_calls"]), st.integers(0, 10**12), min_size=1),
    st.floats(0.001, 1e9) | st.integers(1, 1000),
)
def test_the_command_that_raises_limits_is_taken_also_from_a_carried_request(
    counts: dict[str, int], cost: float
) -> None:
    asked = Request(code="K7Q2", kind="budget", question="", asked_at=NOW)
    asked.raise_to = enough({**counts, "cost_usd": cost}, {**counts, "cost_usd": cost})
    for each in (asked, Request.model_validate_json(asked.model_dump_json())):
        body = json.loads(shlex.split(commands(each, "run")["raise"])[-1])
        more = Budget.model_validate_json(json.dumps(body)).model_dump(exclude={"by"}, exclude_none=True)
        assert all(limit > counts.get(name, 0) for name, limit in more.items())


def test_commands_name_who_may_decide() -> None:
    assert '"by": "bob"' in commands(request(decider="bob"), "run")["approve"]


def test_the_command_that_raises_a_limit_is_taken_after_a_rollover_too() -> None:
    asked = Request(code="K7Q2", kind="budget", question="?", asked_at=NOW, raise_to={"turns": 8, "cost_usd": 0.5})
    carried = Request.model_validate(asked.model_dump(mode="json"))
    body = json.loads(shlex.split(commands(carried, "run-83")["raise"])[-1])
    assert Budget.model_validate(body).turns == 8
    assert body["cost_usd"] == 0.5
