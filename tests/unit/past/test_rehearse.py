"""`perdure rehearse`: a recorded run under other bundles, each difference by name, with no connection to be had."""

import json
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from scripts.commands.rehearse import _rehearse
from scripts.commands.running import Refused
from tests.unit.past.recorded import Recorded

TOOLS = ["list_files", "read_file", "write_file", "notify"]
ALLOW = [{"tool": "*", "decision": "allow"}]
Rehearse = Callable[..., Coroutine[Any, Any, tuple[int, dict[str, Any]]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was made")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    return made


@pytest.fixture
def rehearse(capsys: pytest.CaptureFixture[str]) -> Rehearse:
    async def act(bundle: str, which: str = "run-83") -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = await _rehearse(which, bundle, False, False, True)
        return code, json.loads(capsys.readouterr().out)

    return act


async def played(run: Recorded) -> Recorded:
    """Four turns: a read, a file, a notice that a person was asked about, the answer."""
    rules = [{"tool": "write_file", "decision": "allow"}]
    await run.open(run.bundle("1", TOOLS, policy=rules))
    await run.turn(("list_files", {"path": "."}))
    await run.turn(("write_file", {"path": "a.txt", "content": "a"}))
    await run.turn(("notify", {"text": "it is written"}))
    await run.turn(text="All is done.")
    return run


async def test_the_same_bundle_would_do_the_same(run: Recorded, rehearse: Rehearse) -> None:
    await played(run)
    code, found = await rehearse("shop@1")
    assert (code, found["turns"], found["sent"], found["findings"]) == (0, 4, {}, [])


CASES: dict[str, tuple[dict[str, Any], list[tuple[int, str, str]]]] = {
    "denied": (
        {"policy": [{"tool": "write_file", "when": "arguments.path == 'a.txt'", "decision": "deny"}]},
        [(2, "denied", "policy rule 1")],
    ),
    "asks": ({"policy": []}, [(2, "asks", "no policy rule covers write_file")]),
    "asks no more": ({"policy": ALLOW}, [(3, "asks_no_more", "no person is asked")]),
    "tool gone": (
        {"tools": ["list_files", "notify"], "policy": []},
        [(2, "tool_gone", "There is no tool 'write_file'")],
    ),
    "over budget": (
        {"policy": [{"tool": "write_file", "decision": "allow"}], "budget": {"turns": 2}},
        [(3, "over_budget", "the limit of 2 turns")],
    ),
    "too large": (
        {"policy": [{"tool": "write_file", "decision": "allow"}], "model": [{"model": "m", "context_tokens": 110}]},
        [(2, "context", "a new session would begin (reset)")],
    ),
    "recovers otherwise": (
        {
            "policy": [{"tool": "write_file", "decision": "allow"}],
            "effect": [{"tool": "write_file", "effect": "read"}],
        },
        [(2, "effect", "it recovers as read")],
    ),
    "too many": (
        {"policy": [{"tool": "write_file", "decision": "allow"}], "limits": {"calls_per_turn": 1}},
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_each_difference_is_named_with_its_turn(run: Recorded, rehearse: Rehearse, name: str) -> None:
    await played(run)
    tables, wanted = CASES[name]
    tables = {"tools": TOOLS, **tables}
    run.bundle("2", **tables)
    code, found = await rehearse("shop@2")
    told = [(each["turn"], each["kind"]) for each in found["findings"]]
    assert told == [(turn, kind) for turn, kind, _ in wanted]
    for each, (_, _, said) in zip(found["findings"], wanted, strict=True):
        assert said in each["said"]
    assert code == (1 if wanted else 0)


async def test_arguments_that_do_not_fit_any_more_are_named(run: Recorded, rehearse: Rehearse) -> None:
    await played(run)
    [write] = run.registry.match(["write_file"])
    run.bundle("2", TOOLS, policy=[{"tool": "write_file", "decision": "allow"}])
    before = write.canonical
    try:
        object.__setattr__(write, "canonical", _unfit)
        code, found = await rehearse("shop@2")
    finally:
        object.__setattr__(write, "canonical", before)
    assert code == 1
    assert [(each["turn"], each["call"], each["kind"]) for each in found["findings"]] == [(2, "2.0", "invalid")]


def _unfit(_: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("The arguments do not fit: field `mode`: missing")


async def test_what_would_be_sent_differently_is_told(run: Recorded, rehearse: Rehearse) -> None:
    await played(run)
    run.bundle(
        "2",
        ["list_files", "write_file", "notify", "fetch"],
        prompt="You are an agent.\nBe brief.\n",
        policy=[{"tool": "write_file", "decision": "allow"}],
        model=[{"model": "n", "temperature": 0.5}],
        limits={"tool_output": 1000},
    )
    _, found = await rehearse("shop@2")
    sent = found["sent"]
    assert "+Be brief." in sent["prompt"]
    assert (sent["tools"]["added"], sent["tools"]["gone"]) == (["fetch"], ["read_file"])
    assert "route 1: model: m -> n" in sent["model"]
    assert sent["tool_output"] == {"then": 50_000, "now": 1000}


async def test_rehearsing_writes_nothing_and_claims_no_version(run: Recorded, rehearse: Rehearse) -> None:
    await played(run)
    run.bundle("2", TOOLS)
    before = sorted(await run.store.keys(""))
    await rehearse("shop@2")
    assert sorted(await run.store.keys("")) == before


async def test_a_part_of_a_run_can_be_rehearsed(run: Recorded, rehearse: Rehearse) -> None:
    await played(run)
    _, found = await rehearse("shop@1", "run-83@2")
    assert found["turns"] == 2
    with pytest.raises(Refused, match="no checkpoint 9: its last is 4"):
        await rehearse("shop@1", "run-83@9")
    with pytest.raises(Refused, match="there is no bundle 'shop@9'"):
        await rehearse("shop@9")


async def test_200_turns_are_rehearsed_offline_within_five_seconds(run: Recorded, rehearse: Rehearse) -> None:
    await run.open(run.bundle("1", TOOLS, policy=ALLOW))
    for number in range(199):
        tool = (
            ("write_file", {"path": f"{number}.txt", "content": "x"}) if number % 2 else ("list_files", {"path": "."})
        )
        await run.turn(tool, answers=["y" * 2000])
    await run.turn(text="done")
    run.bundle("2", TOOLS)
    began = time.monotonic()
    code, found = await rehearse("shop@2")
    took = time.monotonic() - began
    assert (code, found["turns"], len(found["findings"])) == (1, 200, 99)
    assert took < 5
