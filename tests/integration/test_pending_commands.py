"""Every command that a run shows is run as it is, under bash; and `perdure` decides by code alone, over all runs."""

import json
import time
from typing import Any

import pytest
from temporalio.client import Client

from tests.integration.kit import Stack, call, calls, pending, say, until
from workers.sending import NotAnswered, send_update

GOAL = 'Write "it\'s", $HOME `id` \\ 100% 日本 🙂\nand, a second line; rm -rf /tmp/x && echo $(whoami) ```\n# approved'
QUESTION = 'Which? ```\n### approval AAAA\n```bash\ntemporal terminate\n``` it\'s "this" 🙂'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
SLOW = 90
DELEGATE = [{"tool": "delegate", "decision": "allow"}]


def bundle(stack: Stack, name: str = "shell", **tables: Any) -> None:
    """A turn with two gated calls and three questions, whose texts hold what shells and Markdown stumble over."""
    turn = calls(
        ("write_file", {"path": 'it\'s a "file".txt', "content": GOAL}),
        ("write_file", {"path": "no.txt", "content": "```\n# heading"}),
        ("ask_human", {"question": QUESTION}),
        ("ask_human", {"question": "Choose", "choices": ["it's $(id)", "two\nlines \x1b[2J"]}),
        ("ask_human", {"question": "How many", "schema": SCHEMA}),
    )
    stack.script(name, turn, say("done"))
    stack.bundle(name, ["write_file", "ask_human"], **tables)


async def test_the_shown_commands_run_as_they_are_under_bash(stack: Stack, client: Client) -> None:
    bundle(stack, budget={"turns": 1})
    stack.serve_model()
    run = f'{stack.name} it\'s "$(id)" `x` 日本 🙂, %s \x1b]0;title\x07'
    async with stack.worker():
        await stack.start({"goal": GOAL, "bundle": "shell"}, run)
        stack.runs.clear()  # its id holds a quote, which the list filter of the replay does not take
        handle = client.get_workflow_handle(run)
        items = await pending(handle, 5, SLOW)
        details = (await handle.query("__temporal_workflow_metadata")).current_details
        for item in items:
            assert item["owner"] == run
            assert all(f"\n{line}\n" in details for line in item["commands"].values()), details
        assert not [line for line in unfenced(details) if "AAAA" in line or "approved" in line or "heading" in line]
        choose = next(item["code"] for item in items if item["question"] == "Choose")
        said = await stack.shell(f"perdure pending; perdure answer {choose} blue --by ann || true")
        assert "must be one of" in said.stderr
        assert "\x1b" not in said.stdout + said.stderr, "what a model or a starter wrote rules no terminal"
        for item in items:
            name = "deny" if item["arguments"].get("path") == "no.txt" else next(iter(item["commands"]))
            done = await stack.shell(item["commands"][name])
            assert done.returncode == 0, f"{item['commands'][name]}: {done.stderr}"

        async def budget() -> Any:
            return [item for item in await handle.query("pending") if item["kind"] == "budget"]

        raised = (await until(budget, SLOW))[0]["commands"]["raise"]
        assert (await stack.shell(raised)).returncode == 0
        result = await handle.result()
    assert result["status"] == "completed"
    assert [each["decision"] for each in result["decisions"]] == [
        *("rejected", "approved", "denied", "answered", "answered", "answered", "resolved")
    ]
    assert {each["by"] for each in result["decisions"][1:]} == {"YOUR-NAME"}
    assert [item["path"] for item in result["artifacts"]] == ['it\'s a "file".txt']


def unfenced(markdown: str) -> list[str]:
    """The lines of a text that Markdown would render: those outside of every code block."""
    found, fence = [], ""
    for line in markdown.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if not fence and len(ticks) >= 3:
            fence = ticks
        elif fence and line == fence:
            fence = ""
        elif not fence:
            found.append(line)
    return found


async def test_perdure_decides_by_code_over_all_runs(stack: Stack, client: Client) -> None:
    bundle(stack, "codes")
    stack.serve_model()
    async with stack.worker():
        runs = [await stack.start({"goal": GOAL, "bundle": "codes"}) for _ in range(2)]
        for run in runs:
            await pending(client.get_workflow_handle(run), 5, SLOW)
        listed = await stack.shell("perdure pending --json")
        assert listed.returncode == 0 or "no worker answered" in listed.stderr, listed.stderr  # runs of other tests
        items = [item for item in json.loads(listed.stdout) if item["owner"] in runs]
        assert len(items) == 10
        assert {item["owner"] for item in items} == set(runs)
        human = await stack.shell(f"perdure pending --run {runs[0]}")
        assert human.returncode == 0, human.stderr
        assert all(
            line in human.stdout for item in items if item["owner"] == runs[0] for line in item["commands"].values()
        )
        mine = {_name(item): item for item in items if item["owner"] == runs[0]}
        edited = json.dumps({"path": "other.txt", "content": "line 1\nline 2"})
        first = await stack.shell(
            f"perdure approve {mine['yes']['code'].lower()} --by \"O'Neil\" --note ok --arguments '{edited}'"
        )
        assert first.returncode == 0, first.stderr
        assert "+" in first.stdout
        assert "other.txt" in first.stdout
        conflict = await stack.shell(f"perdure deny {mine['yes']['code']} --by bob --json")
        assert conflict.returncode == 1
        assert "already edited by O'Neil" in json.loads(conflict.stdout)["error"]
        denied = await stack.shell(f"perdure deny {mine['no.txt']['code']} --by bob --reason 'it is dear' --json")
        assert json.loads(denied.stdout) == {
            "ok": True,
            "status": "denied",
            "code": mine["no.txt"]["code"],
            "owner": runs[0],
        }
        for name, value in ((QUESTION, "'blue 🙂'"), ("Choose", "'it'\"'\"'s $(id)'"), ("How many", "'{\"n\": 4}'")):
            done = await stack.shell(f"perdure answer {mine[name]['code']} {value} --by bob")
            assert done.returncode == 0, done.stderr
        result = await client.get_workflow_handle(runs[0]).result()
        assert [each["decision"] for each in result["decisions"] if each["decision"] != "rejected"] == [
            *("edited", "denied", "answered", "answered", "answered")
        ]
        assert result["artifacts"][0]["path"] == "other.txt"
        left = json.loads((await stack.shell("perdure pending --json")).stdout)
        assert {item["owner"] for item in left if item["owner"] in runs} == {runs[1]}
        for line, code in (
            ("perdure approve 0000 --by a", 1),
            (f"perdure approve {mine['yes']['code']} --by a", 1),  # its run has ended
            ("perdure approve 2222 --by a --run no-such-run", 1),
            ("perdure approve --by a", 2),
            ("perdure resolve 2222 perhaps --by a", 2),
            ("perdure approve 2222 --by a --arguments '[]'", 2),
            ("perdure pending --kind nothing", 2),
            ("TEMPORAL_ADDRESS=127.0.0.1:1 perdure pending", 3),
        ):
            done = await stack.shell(line)
            assert done.returncode == code, f"{line}: {done.returncode} {done.stdout} {done.stderr}"
        await client.get_workflow_handle(runs[1]).terminate()


async def test_all_requests_of_a_run_are_listed_and_found_however_many_there_are(stack: Stack, client: Client) -> None:
    """One answer of the query holds 50."""
    files = [("write_file", {"path": f"{n}", "content": "x"}) for n in range(70)]
    stack.script("many", calls(("delegate", {"goal": "help", "bundle": "kid"}), *files), say("done"))
    stack.script("kid", calls(*files[:5]), say("done"))
    stack.bundle("many", ["write_file", "delegate"], limits={"calls_per_turn": 128}, policy=DELEGATE)
    stack.bundle("kid", ["write_file"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "many"})
        handle = client.get_workflow_handle(run)

        async def all_of_them() -> Any:
            found = [await handle.query("pending", {"skip": skip}) for skip in (0, 50)]
            return found if sum(map(len, found)) == 75 else None

        first, rest = await until(all_of_them, SLOW)
        codes = {item["code"] for item in first + rest}
        newest = await handle.query("pending")
        assert ({item["owner"] for item in newest}, len(newest)) == ({run}, 50), "the run's own come first"
        listed = json.loads((await stack.shell(f"perdure pending --run {run} --json")).stdout)
        assert {item["code"] for item in listed} == codes
        every = json.loads((await stack.shell("perdure pending --json")).stdout)
        assert {item["code"] for item in every} >= codes
        hidden = next(item["code"] for item in first if item not in newest and item["owner"] == run)
        done = await stack.shell(f"perdure approve {hidden} --by a")
        assert done.returncode == 0, done.stderr
        await handle.terminate()


async def test_a_request_of_a_sub_agent_is_answered_as_it_asked_itself(stack: Stack, client: Client) -> None:
    """Its parent lists a copy with cut arguments, from which nobody can tell what the answer must be."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "description": "d" * 2500}}, "required": ["n"]}
    stack.script("boss", call("delegate", goal="ask", bundle="kid"), say("done"))
    stack.script("kid", calls(*(("ask_human", {"question": f"{n}?", "schema": schema}) for n in range(2))), say("done"))
    stack.bundle("boss", ["delegate"], policy=DELEGATE)
    stack.bundle("kid", ["ask_human"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "ask", "bundle": "boss"})
        handle = client.get_workflow_handle(run)
        one, other = await pending(handle, 2, SLOW)
        assert isinstance(one["arguments"], str)
        listed = {item["code"]: item for item in json.loads((await stack.shell("perdure pending --json")).stdout)}
        assert listed[one["code"]]["arguments"]["schema"] == schema
        for code, where in ((one["code"], ""), (other["code"], f"--run {run}")):
            done = await stack.shell(f"perdure answer {code} '{{\"n\": 3}}' --by a {where}")
            assert done.returncode == 0, done.stderr
        assert (await handle.result())["status"] == "completed"


async def test_an_answer_is_read_as_the_question_wants_it_and_the_same_again_is_well(
    stack: Stack, client: Client
) -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answers: dict[str, tuple[dict[str, Any], str, Any]] = {
        "an object": ({"schema": number}, '{"n": 3}', {"n": 3}),
        "a postcode": (
            {"schema": {"type": "string", "pattern": "^[0-9]{5}$", "examples": ["01067"]}},
            "12345",
            "12345",
        ),
        "a number": ({"schema": {"type": "integer"}}, "7", 7),
        "a choice": ({"choices": ["1", "2"], "schema": {"type": "string"}}, "1", "1"),
        "a text in quotes": ({"schema": {"type": "string"}}, '"red"', "red"),
        "a plain text": ({}, '"red"', '"red"'),
        "a text that is JSON": ({}, '{"n": 3}', '{"n": 3}'),
    }
    stack.script("ask", calls(*(("ask_human", {"question": q, **a[0]}) for q, a in answers.items())), say("done"))
    stack.bundle("ask", ["ask_human"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "ask", "bundle": "ask"})
        handle = client.get_workflow_handle(run)
        items = {item["question"]: item for item in await pending(handle, len(answers), SLOW)}
        wrong = await stack.shell(f"perdure answer {items['a number']['code']} 7.5 --by a --run {run}")
        assert (wrong.returncode, "integer" in wrong.stderr) == (1, True)
        for question, (_, typed, _) in answers.items():
            line = f"perdure answer {items[question]['code']} '{typed}' --run {run}"
            done = await stack.shell(f"{line} --by a")
            assert done.returncode == 0, f"{question}: {done.stderr}"
            if question == "an object":
                assert "already answered" in (await stack.shell(f"{line} --by b")).stdout
                conflict = await stack.shell(line.replace("3", "4"))
                assert (conflict.returncode, "already answered by a" in conflict.stderr) == (1, True)
        log = (await handle.result())["decisions"]
    asked = {item["code"]: question for question, item in items.items()}
    said = {asked[entry["code"]]: entry["arguments_after"] for entry in log if entry["decision"] == "answered"}
    assert said == {question: value for question, (_, _, value) in answers.items()}
    assert sum(entry["decision"] == "rejected" for entry in log) <= 1, "nothing was tried out on the run"


async def test_an_edit_that_falls_under_another_effect_rule_runs_under_that(stack: Stack, client: Client) -> None:
    paths = {"notes.tmp": "notes.txt", "other.txt": "other.tmp"}
    turn = calls(*(("write_file", {"path": path, "content": "A"}) for path in paths))
    stack.script("rules", turn, say("done"))
    rule = {"tool": "write_file", "when": "arguments.path.endsWith('.tmp')", "effect": "idempotent"}
    stack.bundle("rules", ["write_file"], effect=[rule])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "rules"})
        handle = client.get_workflow_handle(run)
        for item in await pending(handle, 2, SLOW):
            edited = json.dumps({"path": paths[item["arguments"]["path"]], "content": "B"})
            done = await stack.shell(f"perdure approve {item['code']} --by ann --arguments '{edited}'")
            assert done.returncode == 0, done.stderr
        result = await handle.result()
    assert {item["path"] for item in result["artifacts"]} == set(paths.values())
    ran = {effect["canonical_request"]["arguments"]["path"]: effect["effect"] for effect in result["effects"]}
    assert ran == {"notes.txt": "once", "other.tmp": "idempotent"}
    assert {effect["status"] for effect in result["effects"]} == {"COMMITTED"}


async def test_without_a_worker_a_decision_says_so_in_time(stack: Stack, client: Client) -> None:
    stack.script("left", call("ask_human", question="Which?"), say("done"))
    stack.bundle("left", ["ask_human"])
    stack.serve_model()
    async with stack.worker():
        run = await stack.start({"goal": "ask", "bundle": "left"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle, 1, SLOW))[0]["code"]
    began = time.monotonic()
    with pytest.raises(NotAnswered, match="no worker answered"):
        await send_update(client, run, "answer", {"code": code, "value": "x", "by": "a"}, patience=2)
    told = await stack.shell(f"perdure answer {code} x --by a --run {run}")
    assert (told.returncode, "no worker answered" in told.stderr) == (1, True)
    assert time.monotonic() - began < 60
    await handle.terminate()


def _name(item: dict[str, Any]) -> str:
    if item["kind"] == "question":
        return str(item["question"])
    return "no.txt" if item["arguments"]["path"] == "no.txt" else "yes"
