"""Texts of models and servers: leaked calls, repeated calls, waits, secrets, and what is shown meanwhile."""

import time
from email.utils import formatdate
from typing import Any

import pytest

from activities.errors import spellings
from activities.leaks import is_leaked
from activities.manifest import Caps
from activities.refusals import LONGEST_WAIT, retry_after
from activities.repeats import repeated
from activities.store import open_store
from activities.streaming import StreamWriter, read_stream
from tests.faults.plays import call_item, error, json_body, respond, say, stream
from tests.faults.server import FaultServer
from tests.unit.gateway_kit import KEY, Desk

NAMES = ["read_file", "crm__find"]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>',
        'I look.\n[TOOL_CALLS][{"name": "crm__find", "arguments": {}}]',
        "<function=read_file>{}</function>",
        '<|python_tag|>{"name": "read_file", "parameters": {}}',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0",
        '{"name": "read_file", "arguments": {"path": "a"}}',
        '```json\n{"name": "read_file", "parameters": {}}\n```',
    ],
)
def test_a_call_in_markup_is_known(text: str) -> None:
    assert is_leaked(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "Models write <tool_call> before a call; read the manual.",
        "I used read_file to look at it.",
        '{"name": "Ada", "arguments": "none"}',
        '{"name": "read_file", "arguments": {}, "note": "an example"}',
        "<tool_call> is markup. " + "x" * 300 + " read_file is a tool.",
    ],
)
def test_words_about_markup_are_left_alone(text: str) -> None:
    assert not is_leaked(text, NAMES)


def said(*answers: str) -> list[dict[str, Any]]:
    """A context in which the same call got these answers."""
    found: list[dict[str, Any]] = [{"role": "user", "text": "go"}]
    for number, text in enumerate(answers, 1):
        call = {"id": f"{number}.0", "tool": "read_file", "arguments": '{"path": "a"}', "provider_id": ""}
        found.append({"role": "assistant", "text": "", "calls": [call]})
        found.append({"role": "tool", "call": call["id"], "tool": "read_file", "text": text})
    return found


def test_a_call_that_fails_alike_is_counted_past_what_was_not_run() -> None:
    caps, same = Caps(), {"path": "a"}
    fails = [f"Error: timed out after {n}.5 s (id 0123456789ab{n})" for n in range(3)]
    assert "3 times" in str(repeated(said(*fails), "read_file", same, caps))
    assert "3 times" in str(repeated(said(*fails, "Nobody approved this. It was not run."), "read_file", same, caps))
    assert repeated(said(*fails[:2]), "read_file", same, caps) is None
    assert repeated(said(*fails), "read_file", {"path": "b"}, caps) is None
    assert repeated(said(*fails, "text"), "read_file", same, caps) is None
    assert repeated(said("Error: a", *fails[:2]), "read_file", same, caps) is None
    assert repeated(said(*["same"] * 99), "read_file", same, caps) is None
    assert "4 times" in str(repeated(said(*["same"] * 4), "read_file", same, Caps(same_calls=4)))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "1e300"}, LONGEST_WAIT),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 99 Foo 2026 99:99:99 GMT"}, None),
        ({}, None),
    ],
)
def test_every_form_of_a_wait_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_wait_may_be_a_date() -> None:
    assert retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) == pytest.approx(60, abs=3)


async def test_a_key_that_a_server_echoes_is_nowhere_in_the_reply_or_the_failure() -> None:
    spelled = spellings([KEY])
    assert len(spelled) == 3
    echoes = "; ".join(spelled)
    call = {"id": KEY, "type": "function", "function": {"name": f"x{KEY}", "arguments": f'{{"a": "{KEY}"}}'}}
    plays = [
        say(f"You sent {echoes}", reasoning_content=echoes),
        say(None, "tool_calls", tool_calls=[call]),
        say(None, refusal=echoes),
        json_body({"id": "x", "model": KEY, "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}),
    ]
    with FaultServer(plays) as server:
        asking = Desk(server)
        found = [repr(await asking.ask()) for _ in plays]
    assert all("[redacted]" in text for text in found)
    faults = [
        error(401, echoes, echoes),
        error(500, echoes),
        stream({"error": {"message": echoes, "code": KEY}}),
        json_body({KEY: 1}),
        stream("{" + echoes),
    ]
    for fault in faults:
        with FaultServer([fault]) as server, pytest.raises(Exception, match="m: ") as failed:
            await Desk(server).ask()
        found.append(f"{failed.value!r} {failed.value.__cause__!r} {getattr(failed.value, 'details', '')}")
    assert [text for text in found if any(secret in text for secret in spelled)] == []


async def test_a_key_that_a_server_echoes_in_reasoning_is_not_recorded_and_what_is_encrypted_stays() -> None:
    echoes = "; ".join(spellings([KEY]))
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": f"Bearer {KEY}"}],
        "content": [{"type": "reasoning_text", "text": echoes}],
        "encrypted_content": f"sealed {KEY}",
    }
    signed = {"google": {"thought_signature": "sig", "note": echoes}}
    call = {"id": "c", "type": "function", "extra_content": signed, "function": {"name": "x", "arguments": "{}"}}
    with FaultServer([respond(item, call_item("crm__find"))]) as server:
        kept = (await Desk(server, {"api": "responses"}).ask()).reasoning
    with FaultServer([say(None, "tool_calls", tool_calls=[call])]) as server:
        extra = (await Desk(server).ask()).reasoning
    assert kept is not None
    assert kept["items"][0]["item"].pop("encrypted_content") == f"sealed {KEY}"
    for text in (repr(kept), repr(extra)):
        assert "[redacted]" in text
        assert not any(secret in text for secret in spellings([KEY]))


async def test_the_stream_cache_holds_the_last_attempt_without_secrets() -> None:
    store = open_store("memory://")
    writer = StreamWriter(store, "run.1", "b", 12, "0000-0001", spellings([KEY]))
    await store.put("threads/run/1/stream/b/00000002/0000-0001-001/000001.json", b"{}")
    await writer.start()
    await writer("text", "a failed attempt")
    await writer.flush(end=True)
    await writer.start()
    for letter in f"My key is {KEY}, is it not?":
        await writer("text", letter)
        await writer.flush()
    await writer("call", "read_file ")
    await writer.flush(end=True)
    pieces = await read_stream(store, "run.1")
    assert {(piece.turn, piece.attempt) for piece in pieces} == {(12, "0000-0001-002")}
    assert "".join(piece.text for piece in pieces if piece.kind == "text") == "My key is [redacted], is it not?"
    assert pieces[-1].kind == "call"
    assert not any("/00000002/" in key for key in await store.keys("threads/run/1/stream"))
    assert await read_stream(store, "run.1", turn=3) == []
