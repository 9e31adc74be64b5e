"""Calls that a model gets wrong, through the real gateway and worker: what runs, what is answered, what ends a run."""

from temporalio.client import Client

from tests.faults.kit import Case, answers, begin, run_all, serve
from tests.faults.plays import ask, say
from tests.integration.kit import Stack, pending


def write(path: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"path": path, "content": path}


def written(case: Case) -> set[str]:
    """The files that the run left."""
    assert case.result is not None, case.failure
    return {item["path"] for item in case.result["artifacts"]}


async def test_calls_with_bad_arguments_are_answered_and_never_run(stack: Stack, client: Client) -> None:
    cut_call = ("write_file", '{"path": "a.txt"')
    malformed = Case([ask(cut_call, write("b.txt")), ask(write("a.txt")), say("done")])
    for_ever = Case([ask(cut_call)])
    not_objects = Case([ask(("read_file", text)) for text in ("null", "[1]", '"str"', "42")] + [say("done")])
    nothing = Case([ask(("list_files", "")), ask(("list_files", "null")), say("done")])
    odd = Case(
        [
            ask(("list_files", '{"path": 1e400}'), ("list_files", '{"path": NaN}'), ("list_files", '{"a":1,"a":2}')),
            ask(("list_files", '{"path": "\\ud800"}'), ("list_files", "[" * 100_000), ("list_files", "{}\x00")),
            ask({"id": 7, "type": "function", "function": {"name": "list_files", "arguments": {"path": "."}}}),
            say("done"),
        ]
    )
    await run_all(
        stack, client, malformed=malformed, for_ever=for_ever, not_objects=not_objects, nothing=nothing, odd=odd
    )
    assert malformed.ended == "completed"
    assert written(malformed) == {"a.txt", "b.txt"}
    first, second = answers(malformed, 1)
    assert "at character 16" in first
    assert len(first) < 400
    assert "b.txt" in second
    assert len(malformed.asked) == 3
    assert (for_ever.ended, len(for_ever.asked)) == ("InvalidModelOutput", 5)
    assert not_objects.ended == "completed"
    for turn in range(1, 5):
        assert "arguments must be a JSON object" in answers(not_objects, turn)[0]
    assert nothing.ended == "completed"
    assert "must be" not in answers(nothing, 1)[0] + answers(nothing, 2)[0]
    assert odd.ended == "completed", odd.failure
    assert all("not run" in text for text in [*answers(odd, 1), *answers(odd, 2)])


async def test_unknown_tools_are_answered_with_the_tools_there_are(stack: Stack, client: Client) -> None:
    once = Case([ask(("send_emial", {"to": "x"}), write("a.txt")), say("done")])
    for_ever = Case([ask(("send_emial", {}))])
    nameless = Case([ask({"id": "x", "type": "function", "function": {}}, ("naïve tool!", {})), say("done")])
    mixed = Case([ask(("send_emial", {}), ("list_files", {}))])
    await run_all(stack, client, once=once, for_ever=for_ever, nameless=nameless, mixed=mixed)
    unknown, ran = answers(once, 1)
    assert "list_files, read_file, write_file" in unknown
    assert written(once) == {"a.txt"}
    assert "a.txt" in ran
    assert (for_ever.ended, len(for_ever.asked)) == ("InvalidModelOutput", 5)
    assert nameless.ended == "completed"
    assert (mixed.ended, len(mixed.asked)) == ("InvalidModelOutput", 10)


async def test_the_output_limit_in_a_call_runs_no_effect_and_has_a_cap(stack: Stack, client: Client) -> None:
    limit = {"max_output_tokens": 20}
    cut_text = '{"path": "a.txt", "content": "aaa'
    at_limit = {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}
    cuts = Case(
        [
            ask(("write_file", cut_text), finish="length"),
            ask(("write_file", cut_text), usage=at_limit),
            ask(write("c.txt"), ("list_files", {}), finish="length"),
            say("half of an ans", finish="length"),
            ask(write("d.txt"), usage={**at_limit, "completion_tokens": 19}),
            say("done"),
        ],
        model=limit,
    )
    for_ever = Case([ask(("write_file", cut_text), ("list_files", {}), finish="length")], model=limit)
    await run_all(stack, client, cuts=cuts, for_ever=for_ever)
    assert cuts.ended == "completed", cuts.failure
    assert written(cuts) == {"d.txt"}
    assert "output limit cut this call" in answers(cuts, 1)[0]
    assert "smaller pieces" in answers(cuts, 2)[0]
    assert "output limit cut this call" in answers(cuts, 3)[0]
    assert "output limit" in cuts.asked[4].body["messages"][-1]["content"]
    assert (for_ever.ended, len(for_ever.asked)) == ("InvalidModelOutput", 5)
    assert "truncated" in for_ever.failure.message


async def test_call_ids_that_cannot_be_used_are_replaced_and_every_answer_finds_its_call(
    stack: Stack, client: Client
) -> None:
    def raw(call_id: object, path: str) -> dict[str, object]:
        arguments = f'{{"path": "{path}", "content": "{path}"}}'
        return {"id": call_id, "type": "function", "function": {"name": "write_file", "arguments": arguments}}

    case = Case(
        [
            ask(raw("same", "a"), raw("same2", "b")),
            ask(raw("same", "c"), raw(None, "d")),
            ask(raw("", "e"), raw("x" * 400, "f"), raw("pd_1_0", "g")),
            ask(raw("functions.write_file:3", "h"), raw("a b", "i")),
            say("done"),
        ]
    )
    twice = Case([ask(write("a"), write("b"), ("list_files", {}), ("list_files", {})), say("done")])
    many = Case([ask(*(("list_files", {"path": f"{n}"}) for n in range(300))), say("done")])
    await run_all(stack, client, case=case, twice=twice, many=many)
    assert case.ended == "completed"
    assert written(case) == set("abcdefghi")
    last = case.asked[-1].body["messages"]
    ids = [call["id"] for message in last for call in message.get("tool_calls", ())]
    assert ids[:2] == ["same", "same2"]
    assert "functions.write_file:3" in ids
    assert len(set(ids)) == 9
    assert (written(twice), len(answers(twice, 1))) == ({"a", "b"}, 4)
    assert many.ended == "completed"
    assert len(answers(many, 1)) == 128
    assert "Only 32 calls" in answers(many, 1)[-1]


async def test_a_call_that_fails_the_same_way_again_and_again_asks_a_person(stack: Stack, client: Client) -> None:
    failing = Case([ask(("read_file", {"path": "missing.txt"}))], start={"budget": {"turns": 30}})
    with serve(stack, failing=failing) as server:
        async with stack.worker():
            handle = await begin(stack, client, failing)
            request = (await pending(handle))[0]
            status = await handle.query("status")
            await handle.terminate()
    assert server.invalid == []
    assert request["tool"] == "read_file"
    assert "failed the same way 3 times" in request["question"]
    assert status["waiting_on"] == ["approval"]
    assert status["turn"] == 4
