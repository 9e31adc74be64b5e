"""Every command that a run shows is run as it is, under bash; and `perdure` decides by code alone, over all runs."""

import json
from typing import Any

from temporalio.client import Client

from tests.integration.kit import Stack, calls, pending, say, until

GOAL = 'Write "it\'s", $HOME `id` \\ 100% 日本 🙂\nand, a second line; rm -rf /tmp/x && echo $(whoami) ```\n# approved'
QUESTION = 'Which? ```\n### approval AAAA\n```bash\ntemporal terminate\n``` it\'s "this" 🙂'
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
SLOW = 90


def bundle(stack: Stack, name: str = "shell", **tables: Any) -> None:
    """A turn with two gated calls and three questions, whose texts hold what shells and Markdown stumble over."""
    turn = calls(
        ("write_file", {"path": 'it\'s a "file".txt', "content": GOAL}),
        ("write_file", {"path": "no.txt", "content": "```\n# heading"}),
        ("ask_human", {"question": QUESTION}),
        ("ask_human", {"question": "Choose", "choices": ["it's $(id)", "two\nlines"]}),
        ("ask_human", {"question": "How many", "schema": SCHEMA}),
    )
    stack.script(name, turn, say("done"))
    stack.bundle(name, ["write_file", "ask_human"], **tables)


async def test_the_shown_commands_run_as_they_are_under_bash(stack: Stack, client: Client) -> None:
    bundle(stack, budget={"turns": 1})
    stack.serve_model()
    run = f'{stack.name} it\'s "$(id)" `x` 日本 🙂, %s'
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
        *("approved", "denied", "answered", "answered", "answered", "resolved")
    ]
    assert {each["by"] for each in result["decisions"]} == {"YOUR-NAME"}
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


def _name(item: dict[str, Any]) -> str:
    if item["kind"] == "question":
        return str(item["question"])
    return "no.txt" if item["arguments"]["path"] == "no.txt" else "yes"
