"""`perdure replay` over files: each form in which a history is downloaded, and what it says where code and run part."""

import json
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson

from activities.store import open_store
from scripts.commands.replay import _replay
from tests.durable.corpus import HISTORIES
from workers.client import data_converter

DECIDED = HISTORIES / "1" / "decided-1.json"
Replay = Callable[..., Coroutine[Any, Any, tuple[int, list[dict[str, Any]]]]]


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Replay:
    """The command with no socket to be had."""
    monkeypatch.setenv("PERDURE_STORE", (tmp_path / "store").as_uri())

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refused)

    async def act(*what: Path) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = await _replay([str(path) for path in what], None, False, True)
        return code, json.loads(capsys.readouterr().out)

    return act


def written(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A recorded history with something changed in it."""
    body = json.loads(DECIDED.read_text())
    path = folder / "changed.json"
    path.write_text(json.dumps(change(body) or body))
    return path


def event(body: dict[str, Any], kind: str, which: int = 0) -> dict[str, Any]:
    found: list[dict[str, Any]] = [each[kind] for each in body["events"] if kind in each]
    return found[which]


async def test_a_history_file_replays_without_a_connection(replay: Replay) -> None:
    code, [one] = await replay(DECIDED)
    assert (code, one["ok"], one["run"], one["events"]) == (0, True, str(DECIDED), 88)


async def test_the_first_diverging_event_is_named_by_turn_and_call(replay: Replay, tmp_path: Path) -> None:
    def another_tool(body: dict[str, Any]) -> None:
        runs = [
            each["activityTaskScheduledEventAttributes"]["activityType"]
            for each in body["events"]
            if each.get("activityTaskScheduledEventAttributes", {}).get("activityType", {}).get("name") == "tool.run"
        ]
        runs[1]["name"] = "tool.walk"

    code, [one] = await replay(written(tmp_path, another_tool))
    assert code == 1
    assert "tool.walk" in one["fault"]
    assert "Failure {" not in one["fault"]
    place = one["place"]
    assert (place["event"], place["turn"], place["call"]) == (54, 2, None)
    assert place["request"].startswith("approval ")
    assert place["recorded"] == "activity task scheduled tool.walk (write_file b.txt)"


async def test_an_approval_that_is_not_asked_any_more_is_named(replay: Replay, tmp_path: Path) -> None:
    def never_asked(body: dict[str, Any]) -> None:
        events = body["events"]
        upsert, timer = events[38], events[39]
        assert "upsertWorkflowSearchAttributesEventAttributes" in upsert
        events[38:40] = [{**timer, "eventId": "39"}, {**upsert, "eventId": "40"}]

    _, [one] = await replay(written(tmp_path, never_asked))
    assert one["place"]["turn"] == 2
    assert one["place"]["request"] == "approval 4DAH"


@pytest.mark.parametrize("names", ["proto", "plain", "list"])
async def test_a_download_replays_however_its_event_types_are_spelled(
    replay: Replay, tmp_path: Path, names: str
) -> None:
    def spelled(body: dict[str, Any]) -> Any:
        for each in body["events"]:
            if names == "plain":
                words = each["eventType"].removeprefix("EVENT_TYPE_").split("_")
                each["eventType"] = "".join(word.capitalize() for word in words)
        return body["events"] if names == "list" else body

    code, [one] = await replay(written(tmp_path, spelled))
    assert (code, one["fault"]) == (0, None)


def decoded(body: dict[str, Any]) -> None:
    event(body, "workflowExecutionStartedEventAttributes")["input"]["payloads"] = [{"goal": "as the Web UI decodes it"}]


def encrypted(body: dict[str, Any]) -> None:
    payload = event(body, "workflowExecutionStartedEventAttributes")["input"]["payloads"][0]
    payload["metadata"]["encoding"] = "YmluYXJ5L2VuY3J5cHRlZA=="


def gapped(body: dict[str, Any]) -> None:
    del body["events"][10]


def beheaded(body: dict[str, Any]) -> None:
    del body["events"][:5]


def emptied(body: dict[str, Any]) -> None:
    body["events"] = []


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "decoded": (decoded, "`Decode Event History` unticked"),
    "encrypted": (encrypted, "binary/encrypted), and no codec is configured"),
    "a gap": (gapped, "lacks event 11"),
    "no beginning": (beheaded, "lacks event 1"),
    "no events": (emptied, "holds no events"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_cannot_be_replayed_is_said_with_its_remedy(replay: Replay, tmp_path: Path, name: str) -> None:
    change, said = FAULTS[name]
    code, [one] = await replay(written(tmp_path, change))
    assert code == 1
    assert said in one["fault"]


async def test_one_file_that_is_cut_off_does_not_hide_the_others(replay: Replay, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(DECIDED.read_text()[:5000])
    code, told = await replay(cut, tmp_path / "missing.json", DECIDED)
    assert code == 1
    assert [one["ok"] for one in told] == [False, False, True]
    assert "is no JSON, or only the beginning of it" in told[0]["fault"]
    assert "cannot be read: No such file" in told[1]["fault"]


async def test_a_file_that_is_nested_too_deeply_is_refused(replay: Replay, tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    for text in ("[" * 100_000, '{"events": [' + '{"a":' * 600 + "1" + "}" * 600 + "]}"):
        path.write_text(text)
        code, [one] = await replay(path)
        assert (code, "nested too deeply" in one["fault"]) == (1, True), one["fault"]


async def test_an_open_history_replays_as_far_as_it_goes(replay: Replay, tmp_path: Path) -> None:
    def still_open(body: dict[str, Any]) -> None:
        del body["events"][41:]

    code, [one] = await replay(written(tmp_path, still_open))
    assert (code, one["events"]) == (0, 41)


async def test_payloads_kept_in_the_store_are_read_from_it_and_named_when_they_are_gone(
    replay: Replay, tmp_path: Path
) -> None:
    store = open_store((tmp_path / "store").as_uri())
    [large] = await data_converter(store).encode([{"goal": "x" * 700_000, "bundle": "decided"}])

    def stored(body: dict[str, Any]) -> None:
        payloads = event(body, "workflowExecutionStartedEventAttributes")["input"]["payloads"]
        payloads[0] = json.loads(MessageToJson(large))

    path = written(tmp_path, stored)
    code, [one] = await replay(path)
    assert (code, one["fault"]) == (0, None)
    [key] = await store.keys("payloads")
    await store.delete("payloads")
    code, [one] = await replay(path)
    assert code == 1
    assert (key in one["fault"], one["place"]) == (True, None), one
