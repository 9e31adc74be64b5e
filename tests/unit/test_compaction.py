"""Making an overfull context smaller: whatever it holds, what is left is a context that may be sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities import compaction
from activities.context import check
from activities.manifest import Model
from activities.reply import Ask
from activities.wire_chat import messages
from activities.wire_responses import items
from scripts.chat_protocol import check_messages
from tests.faults.responses_protocol import check_input

texts = st.text("ab \n", max_size=400)
outputs = st.sampled_from(
    ["ok", "x" * 3_000, "Nobody approved this call before its deadline (expired). It was not run."]
)
turns = st.lists(
    st.one_of(
        st.tuples(st.just("user"), texts),
        st.tuples(st.just("answer"), texts),
        st.tuples(st.just("calls"), st.lists(outputs, min_size=1, max_size=4)),
    ),
    max_size=20,
)


def context_of(turns: list[Any]) -> list[dict[str, Any]]:
    """A context as the run makes it: calls in parallel, some of them denied, each answered."""
    found: list[dict[str, Any]] = [{"role": "user", "text": "The goal."}]
    for number, (kind, what) in enumerate(turns, 1):
        if kind == "user":
            found.append({"role": "user", "text": what or "go on"})
        elif kind == "answer":
            found.append({"role": "assistant", "text": what or "well", "calls": []})
        else:
            ids = [f"{number}.{index}" for index in range(len(what))]
            calls = [{"id": i, "provider_id": "same", "tool": "read_file", "arguments": "{}"} for i in ids]
            found.append({"role": "assistant", "text": "", "calls": calls})
            found += [
                {"role": "tool", "call": i, "tool": "read_file", "text": text}
                for i, text in zip(ids, what, strict=True)
            ]
    return found


@given(turns, st.integers(300, 60_000), st.sampled_from(["", "maximum is 1000 tokens, you sent 90000 tokens"]))
def test_what_is_left_keeps_the_protocol_and_the_first_message(turns: list[Any], shown: int, said: str) -> None:
    context = context_of(turns)
    check(context)
    for _ in range(4):
        plan = compaction.plan(context, shown, said)
        if plan is None:
            break
        smaller = compaction.apply(context, plan)
        check(smaller)
        assert smaller[0] == context[0]
        assert smaller[-1] == context[-1]
        question = Ask("system", smaller, [], plan["tool_output"])
        check_messages(messages(Model(model="m"), question, set()))
        check_input({"input": items(Model(model="m"), question, set())})
        kept = next((m for m in reversed(context) if m["role"] == "assistant"), None)
        if kept is None:
            break
        context = [*context, {"role": "assistant", "text": "next", "calls": [], "compaction": plan}]
        assert compaction.compacted(context)[1] == plan["tool_output"]


def test_one_huge_tool_result_is_shown_shorter() -> None:
    context = context_of([("calls", ["y" * 1_000_000])])
    plan = compaction.plan(context, 50_000, "maximum context length is 8192 tokens, however you requested 12500 tokens")
    assert plan is not None
    assert (plan["start"], plan["end"], plan["text"]) == (1, 1, "")
    assert plan["tool_output"] < 8192 * 4 * 0.7


def test_nothing_can_be_left_out_of_a_goal_alone() -> None:
    assert compaction.plan([{"role": "user", "text": "g" * 10**6}], 500, "") is None


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", 0.5),
        ("limit 8192, got 9300", 0.5),
        ("4,000 of 28,000 tokens", 0.1),
        ("prompt is too long: 210000 tokens > 200000 maximum (request id: 20250611153012345678)", 0.5),
        ("prompt is too long: 210000 tokens > 200000 maximum (request id: 2025061)", 0.5),
        ("req-1234-5678: 210000 tokens > 200000 maximum", 0.5),
        ("Error code: 400 - {'detail': '20000 tokens > 10000'}", 0.35),
        ("Error: 20000 tokens > 10000", 0.35),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", 0.5),
        ("maximum context length is 8192 tokens, but 10346 were asked for (8346 in the prompt; 2000 to complete)", 0.5),
        ("maximum context length is 9000 tokens, but 91000 were asked for (90000 in the prompt; 1000 more)", 0.0692),
        ("exceeds the 8192-token limit: 12000", 0.478),
    ],
)
def test_the_servers_own_numbers_say_how_much_to_keep(said: str, kept: float) -> None:
    assert compaction.share(said) == pytest.approx(kept, abs=0.001)
