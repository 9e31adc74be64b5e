"""The scripted model over real HTTP: what it plays, what it refuses, what it counts."""

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from scripts.model_script import ScriptError, load_scripts
from scripts.scripted_model import ScriptedModel, serve

SCRIPT = """
[variables]
page = "${sites}/index.html"

[[turn]]
text = "Two pages first: schön."
calls = [{ tool = "web.fetch", arguments = { url = "${page}" } }, { tool = "web__fetch", arguments = { url = "b" } }]

[[turn]]
expect = "42"
delay = 0.01
calls = [{ tool = "note", arguments_text = '{"broken": ', id = "mine" }]

[[turn]]
text = "It is 42."
finish_reason = "length"
"""

REFUSAL = """
[[turn]]
refusal = "I will not."

[[turn]]
text = ""
"""


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # empty: to load the system's certificates takes longer than a test
TOOLS = [tool("web__fetch"), tool("note")]


def call(call_id: str, arguments: str = "{}", name: str = "note") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: str, content: Any = "42") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER: dict[str, Any] = {"role": "user", "content": "Go."}
SYSTEM: dict[str, Any] = {"role": "system", "content": "You are a test."}


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "pages.toml").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "no.toml").write_text(REFUSAL, encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(scripts: Path) -> Iterator[ScriptedModel]:
    with serve(scripts, "127.0.0.1", 0, {"sites": "http://127.0.0.1:9"}) as server:
        yield server


def post(server: ScriptedModel, /, **body: Any) -> httpx.Response:
    request = {"model": "pages", "messages": [USER], "tools": TOOLS, **body}
    return httpx.post(f"{server.url}/chat/completions", json=request, verify=NO_TLS)


def openai_client(server: ScriptedModel) -> Any:
    return AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)


async def test_the_openai_client_plays_a_script_to_its_end(model: ScriptedModel) -> None:
    messages: list[Any] = [SYSTEM, USER]
    async with openai_client(model) as client:
        first = await client.chat.completions.create(model="pages", messages=messages, tools=TOOLS)
        assert first.choices[0].message.content == "Two pages first: schön."
        calls = first.choices[0].message.tool_calls
        assert [call.function.name for call in calls] == ["web__fetch", "web__fetch"]
        assert json.loads(calls[0].function.arguments) == {"url": "http://127.0.0.1:9/index.html"}
        assert len({call.id for call in calls}) == 2
        messages.append(first.choices[0].message.model_dump(exclude_none=True))
        messages += [result(calls[0].id, "41"), result(calls[1].id, "42")]

        second = await client.chat.completions.create(model="pages", messages=messages, tools=TOOLS)
        assert second.choices[0].finish_reason == "tool_calls"
        assert second.choices[0].message.content is None
        broken = second.choices[0].message.tool_calls[0]
        assert (broken.id, broken.function.arguments) == ("mine", '{"broken": ')
        messages += [said(call("mine")), result("mine")]

        third = await client.chat.completions.create(model="pages", messages=messages, tools=TOOLS)
        assert (third.choices[0].message.content, third.choices[0].finish_reason) == ("It is 42.", "length")
    assert model.stats() == {"requests": {"pages": {"0": 1, "1": 1, "2": 1}}, "refused": []}


@pytest.mark.parametrize("with_usage", [True, False])
async def test_a_stream_holds_the_same_message(model: ScriptedModel, with_usage: bool) -> None:
    whole = post(model).json()
    text, finish, usage = "", None, None
    calls: dict[int, dict[str, str]] = {}
    async with openai_client(model) as client:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if with_usage else {}
        stream = await client.chat.completions.create(
            model="pages", messages=[USER], tools=TOOLS, stream=True, **options
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
                for piece in choice.delta.tool_calls or ():
                    seen = calls.setdefault(piece.index, {"id": piece.id, "name": piece.function.name, "arguments": ""})
                    seen["arguments"] += piece.function.arguments
    message = whole["choices"][0]["message"]
    assert text == message["content"]
    assert finish == whole["choices"][0]["finish_reason"]
    assert list(calls.values()) == [{"id": call["id"], **call["function"]} for call in message["tool_calls"]]
    assert (usage.model_dump(exclude_none=True) if usage else None) == (whole["usage"] if with_usage else None)


def test_usage_goes_with_the_size_and_what_was_sent_before_is_cached(model: ScriptedModel) -> None:
    small = post(model, model="no").json()["usage"]
    goal = {"role": "user", "content": "x" * 8000}
    large = post(model, model="no", messages=[goal]).json()["usage"]
    assert 1950 < large["prompt_tokens"] - small["prompt_tokens"] < 2050
    assert large["total_tokens"] == large["prompt_tokens"] + large["completion_tokens"]
    assert large["prompt_tokens_details"]["cached_tokens"] == 0
    again = [goal, {"role": "assistant", "content": "y"}, USER]
    cached = post(model, model="no", messages=again).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached % 128 == 0
    assert large["prompt_tokens"] - 128 < cached <= large["prompt_tokens"]


def test_a_refusal_and_an_empty_answer_are_played(model: ScriptedModel) -> None:
    first = post(model, model="no").json()["choices"][0]
    assert (first["message"]["content"], first["message"]["refusal"]) == (None, "I will not.")
    said_no = {"role": "assistant", "content": None, "refusal": "I will not."}
    second = post(model, model="no", messages=[USER, said_no, USER]).json()["choices"][0]
    assert (second["message"]["content"], second["finish_reason"]) == ("", "stop")


BROKEN: list[tuple[list[Any], str]] = [
    ([], "at least one message"),
    ([SYSTEM], "no user message"),
    (["hello"], "messages[0]: a message must be an object"),
    ([{"role": "robot", "content": "x"}], "messages[0]: unknown role 'robot'"),
    ([SYSTEM, {"role": "assistant", "content": "x"}], "messages[1]: the first message after the system message"),
    ([USER, said(call("a"))], "messages end, but tool call 'a' has no tool message"),
    ([USER, said(call("a")), USER], "messages[2]: a user message, but tool call 'a' has no tool message yet"),
    ([USER, said(call("a"), call("b")), result("a"), USER], "messages[3]: a user message, but tool call 'b'"),
    ([USER, said(call("a"), call("b")), result("b"), result("a")], "'b', but the next call to answer is 'a'"),
    ([USER, said(call("a")), result("a"), result("a")], "messages[3]: a tool message for 'a', but no tool call waits"),
    ([USER, result("z")], "messages[1]: a tool message for 'z', but no tool call waits"),
    ([USER, said(call("a"), call("a"))], "messages[1].tool_calls[1]: the call id 'a' occurs twice"),
    ([USER, said(call("a")), result("a"), said(call("a"))], "messages[3].tool_calls[0]: the call id 'a' occurs twice"),
    ([USER, said(call("a", '{"x": '))], "messages[1].tool_calls[0]: arguments are not JSON"),
    ([USER, said(call("a", '{"x": NaN}'))], "NaN is not JSON"),
    ([USER, said(call("a", "[1]"))], "a string that holds a JSON object"),
    ([USER, said({**call("a"), "function": {"name": "note", "arguments": {"x": 1}}})], "a string that holds"),
    ([USER, said(call("a", name="web.fetch"))], "the tool name 'web.fetch' does not match"),
    ([USER, said(call(""))], "a call must have an id"),
    ([USER, said({"id": "a", "function": {}})], "of type 'function'"),
    ([USER, said()], "messages[1].tool_calls: must be a list with at least one call"),
    ([USER, said(call("a")), result("a", None)], "messages[2]: a tool message must have content"),
    ([{"role": "user", "content": None}], "messages[0]: a user message must have content"),
    ([{"role": "user", "content": 7}], "content must be a string or a list of parts"),
    ([{"role": "user", "content": ["x"]}], "a part of the content must be an object"),
    (
        [USER, said(call("a")), result("a", "41")],
        "turn[1] expects '42' in the last tool or user message, which is '41'",
    ),
    ([USER, *[{"role": "assistant", "content": "x"}, USER] * 3], "script 'pages' is spent: it has 3 turns"),
]


@pytest.mark.parametrize(("messages", "reason"), BROKEN, ids=[reason[:60] for _, reason in BROKEN])
def test_a_broken_request_gets_a_400_that_says_what_is_wrong(
    model: ScriptedModel, messages: list[Any], reason: str
) -> None:
    response = post(model, messages=messages)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert reason in error["message"]
    assert model.stats() == {"requests": {}, "refused": [{"model": "pages", "message": error["message"]}]}


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([tool("note")], "calls 'web.fetch', which this request does not offer (note)"),
        (None, "does not offer (none)"),
        ({}, "tools: must be a list"),
        ([tool("web.fetch")], "tools[0]: the tool name 'web.fetch' does not match"),
        ([*TOOLS, tool("note")], "tools[2]: the tool 'note' is offered twice"),
        ([{"name": "note"}], "tools[0]: a tool must be an object of type 'function'"),
    ],
)
def test_the_tools_of_a_request_must_offer_what_the_script_calls(model: ScriptedModel, tools: Any, reason: str) -> None:
    response = post(model, tools=tools)
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"]


async def test_the_openai_client_raises_its_own_error(model: ScriptedModel) -> None:
    async with openai_client(model) as client:
        with pytest.raises(BadRequestError, match="does not offer"):
            await client.chat.completions.create(model="pages", messages=[USER])


def test_other_paths_bodies_and_models_are_refused_too(model: ScriptedModel) -> None:
    root = model.url
    assert post(model, model="unknown").status_code == 404
    assert "scripts: no, pages" in post(model, model="unknown").json()["error"]["message"]
    assert httpx.post(f"{root}/chat/completions", content=b"{").json()["error"]["code"] == "invalid_json"
    assert httpx.post(f"{root}/chat/completions", content=b"[]").status_code == 400
    assert httpx.post(f"{root}/chat/completions", content=iter([b"{}"])).status_code == 411
    assert httpx.post(f"{root}/responses", json={}).status_code == 404
    assert httpx.get(f"{root}/nothing").status_code == 404
    assert [entry["id"] for entry in httpx.get(f"{root}/models").json()["data"]] == ["no", "pages"]


def test_a_default_script_answers_for_unknown_models_and_the_hook_hears_of_every_turn(scripts: Path) -> None:
    heard: list[tuple[str, int]] = []
    with serve(
        scripts,
        variables={"sites": "s"},
        default_script="pages",
        on_turn=lambda name, index: heard.append((name, index)),
    ) as model:
        response = post(model, model="gpt-5-mini")
        assert response.json()["model"] == "gpt-5-mini"
        post(model, model="gpt-5-mini")
        assert httpx.get(f"{model.url.removesuffix('/v1')}/stats").json() == model.stats()
        assert heard == [("pages", 0), ("pages", 0)]
        assert model.stats()["requests"] == {"pages": {"0": 2}}
    with pytest.raises(ScriptError, match="no script 'other'"):
        serve(scripts, variables={"sites": "s"}, default_script="other")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[turn]]\ntext = '${nobody}'", r"bad\.toml: turn\[0\]: text: unknown variable \$\{nobody\} \(given: sites\)"),
        ("[[turn]\n", "not readable as TOML"),
        ("description = 'x'", r"turn: Field required"),
        ("[[turn]]\ntxt = 'x'", r"turn\.0\.txt: Extra inputs"),
        ("[[turn]]\ndelay = -1", r"turn\.0\.delay"),
        ("[[turn]]\ncalls = [{tool = 'no spaces'}]", r"turn\.0\.calls\.0\.tool"),
        ("[[turn]]\ncalls = [{tool = 'a', arguments = {x = 1}, arguments_text = ''}]", "keep one"),
        ("[[turn]]\ncalls = [{tool = 'a', arguments = {x = 2026-01-01}}]", "write dates as strings"),
    ],
)
def test_a_script_that_cannot_be_played_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ScriptError, match=reason):
        load_scripts(tmp_path, {"sites": "s"})


def test_a_folder_without_scripts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="no script here"):
        load_scripts(tmp_path, {})


def test_the_command_line_says_where_it_listens_first(scripts: Path) -> None:
    command = [sys.executable, "-m", "scripts.scripted_model", "--scripts", str(scripts)]
    with subprocess.Popen([*command, "--var", "sites=s"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline().strip()
            assert httpx.get(f"{first.removeprefix('listening on ')}/models").status_code == 200
        finally:
            process.terminate()
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "unknown variable ${sites}" in missing.stderr
