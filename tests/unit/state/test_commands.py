"""`perdure checkpoints` and `perdure verify`: what they say of a run's records, and what they never show."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from activities.store import LocalStore
from scripts.commands.checkpoints import _list as list_checkpoints
from scripts.commands.running import Refused
from scripts.commands.verify import _verify as verify_run
from tests.unit.state.chains import BRANCH, THREAD, Chain
from workflows.keys import checkpoint_key, entry_key, segment_key

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def chain(tmp_path: Path) -> Chain:
    made = Chain(LocalStore(tmp_path / "store"))
    await made.open("the secret goal")
    for _ in range(35):
        await made.turn(said="secret words")
    return made


Look = Callable[[str, str], Coroutine[Any, Any, tuple[int, dict[str, Any]]]]


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Look:
    """`perdure <command> <run> --json`, without the process around it."""
    monkeypatch.setenv("PERDURE_STORE", (tmp_path / "store").as_uri())
    commands = {"checkpoints": list_checkpoints, "verify": verify_run}

    async def act(command: str, run: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = await commands[command](run, True)
        return code, json.loads(capsys.readouterr().out)

    return act


@pytest.mark.parametrize("run", ["run-83", THREAD])
async def test_checkpoints_are_listed_in_numeric_order_without_content(chain: Chain, look: Look, run: str) -> None:
    code, found = await look("checkpoints", run)
    assert code == 0
    assert found["thread"] == THREAD
    assert [line["sequence"] for line in found["checkpoints"]] == list(range(36))
    assert {(line["schema"], line["state"], line["branch"]) for line in found["checkpoints"]} == {(1, "ok", BRANCH)}
    assert all(line["bytes"] > 100 and len(line["sha256"]) == 64 for line in found["checkpoints"])
    assert "secret" not in json.dumps(found)


async def test_verify_says_that_all_is_well(chain: Chain, look: Look) -> None:
    code, found = await look("verify", "run-83")
    assert (code, found) == (0, {"thread": THREAD, "checkpoints": 36, "faults": []})


FAULTS = {
    "record": (checkpoint_key(THREAD, BRANCH, 7), "00000007.json"),
    "segment": (segment_key(THREAD, BRANCH, 31), "segment"),
}


@pytest.mark.parametrize("what", FAULTS)
async def test_verify_names_what_is_damaged(chain: Chain, look: Look, tmp_path: Path, what: str) -> None:
    key, named = FAULTS[what]
    path = tmp_path / "store" / key
    path.write_bytes(path.read_bytes()[:-3])
    code, found = await look("verify", "run-83")
    assert code == 1
    assert any(named in fault for fault in found["faults"])


async def test_verify_names_a_body_that_is_gone_even_when_a_segment_has_it(
    chain: Chain, look: Look, tmp_path: Path
) -> None:
    record = await chain.checkpoints.find(THREAD, BRANCH, 7)
    assert record is not None
    (tmp_path / "store" / entry_key(THREAD, record.inputs.entries[0])).unlink()
    code, found = await look("verify", "run-83")
    assert code == 1
    assert record.inputs.entries[0] in found["faults"][0]


async def test_a_damaged_record_is_one_line_and_the_next_says_so(chain: Chain, look: Look, tmp_path: Path) -> None:
    (tmp_path / "store" / checkpoint_key(THREAD, BRANCH, 7)).write_text("{}")
    code, found = await look("checkpoints", "run-83")
    states = {line["sequence"]: line["state"] for line in found["checkpoints"] if line["state"] != "ok"}
    assert code == 1
    assert list(states) == [7, 8]
    assert "gap" in states[8]


async def test_the_table_shows_no_content_either(
    chain: Chain, look: Look, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert await list_checkpoints("run-83", False) == 0
    text = capsys.readouterr().out
    assert chain.head is not None
    assert chain.head.sha256[:12] in text
    assert "secret" not in text


async def test_an_unknown_run_is_a_no_and_a_store_out_of_reach_is_not(chain: Chain, look: Look, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="run-84"):
        await look("verify", "run-84")
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("in the way")
    command = [sys.executable, "-m", "scripts.cli", "verify", "run-83"]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
