"""`perdure doctor`: every part by itself, with the command that mends it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client

from activities.store import LocalStore
from scripts.embedded import free_port
from tests.faults.plays import STALL
from tests.faults.plays import say as play_say
from tests.faults.server import FaultServer
from tests.integration.kit import Stack, say, until
from workers import checked_bundles
from workers import checkup as checkups
from workers.causes import Cause, Seen
from workers.checked_bundles import Finding
from workers.checkup import checkup
from workers.open_runs import OpenRun
from workers.settings import read_settings, read_usable


async def findings(stack: Stack, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Finding]:
    """By check, the worst of each."""
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    order = {"ok": 0, "warn": 1, "bad": 2}
    found = await checkup(stack.settings(), **options)
    return {each.check: each for each in sorted(found, key=lambda each: order[each.state])}


async def test_a_whole_installation_is_found_well(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.script("well", say("ok"))
    stack.bundle("well", [], model=[{"model": "well"}])
    stack.serve_model()
    async with stack.worker():

        async def served() -> bool:
            return (await findings(stack, monkeypatch))["workers"].state == "ok"

        await until(served, 60, "workers that poll")
        found = await findings(stack, monkeypatch)
    others = ("runs", "versions", "isolation")  # of the whole namespace, which other tests share, and of the machine
    states = {name: each.state for name, each in found.items() if name not in others}
    assert states == dict.fromkeys(
        ["server", "namespace", "search attributes", "store", "tools", "bundles", "workers", "codec"], "ok"
    )
    assert not list((stack.folder / "store").rglob("doctor/*/*")), "it cleans up behind itself"


async def test_what_is_broken_is_named_with_its_remedy_and_hides_nothing_else(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.bundle("bad", ["no_such_tool"])
    (stack.folder / "store").rmdir()
    (stack.folder / "store").write_text("not a folder")
    stack.environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{free_port()}"
    found = await findings(stack, monkeypatch)
    assert (found["store"].state, found["bundles"].state, found["workers"].state) == ("bad", "bad", "bad")
    assert "no_such_tool" in found["bundles"].said
    assert found["workers"].remedy == "perdure worker"
    assert found["server"].state == found["tools"].state == "ok"
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    lost = await findings(stack, monkeypatch)
    assert lost["namespace"].remedy == "temporal operator namespace create -n nowhere --retention 720h"
    assert [each for each in (*found.values(), *lost.values()) if each.state != "ok" and not each.remedy] == []


async def test_a_model_that_does_not_answer_is_named(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{free_port()}"
    found = await findings(stack, monkeypatch, model=True)
    assert found["model"].state == "bad"
    assert "OPENAI_BASE_URL" in found["model"].remedy
    assert stack.environment["OPENAI_API_KEY"] not in repr(found)


async def test_a_store_without_put_if_absent_is_found_out(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(LocalStore):
        async def put_new(self, key: str, data: bytes) -> bool:
            await self.put(key, data)
            return True

    monkeypatch.setattr(checkups, "open_store", lambda url: Careless(stack.folder / "store"))
    found = await findings(stack, monkeypatch)
    assert found["store"].state == "bad"
    assert "put-if-absent" in found["store"].said


async def test_a_model_server_that_hangs_is_named_and_hides_no_other(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_bundles, "ASK_SECONDS", 1.5)
    hangs = {"model": "hangs", "base_url_env": "HANGS_URL"}
    refuses = {"model": "refuses", "base_url_env": "REFUSES_URL"}
    answers = {"model": "answers", "base_url_env": "ANSWERS_URL"}
    others = [{**refuses, "api_key_env": "ANOTHER_KEY"}, {**refuses, "api": "responses"}]
    stack.bundle("routes", [], model=[hangs, refuses, *others, answers])
    stack.bundle("again", [], model=[hangs])
    with FaultServer([STALL]) as silent, FaultServer([play_say("ok")]) as good:
        monkeypatch.setenv("HANGS_URL", silent.url)
        monkeypatch.setenv("REFUSES_URL", f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv("ANSWERS_URL", good.url)
        for name, value in stack.environment.items():
            monkeypatch.setenv(name, value)
        found = await checkup(read_settings(), model=True)
    models = [(each.said.split()[0].rstrip(":"), each.state) for each in found if each.check == "model"]
    ours = [each for each in models if each[0] in ("hangs", "refuses", "answers")]
    assert sorted(ours) == [("answers", "ok"), ("hangs", "bad"), *[("refuses", "bad")] * 3]
    assert [each.remedy for each in found if each.said.startswith("hangs")] == ["look at HANGS_URL and OPENAI_API_KEY"]
    assert [each.state for each in found if each.check == "bundles"] == ["ok"]


@pytest.mark.parametrize(
    ("variable", "value", "check"),
    [
        ("PERDURE_CODEC", "no.such:codec", "codec"),
        ("PERDURE_BUNDLES", "/nowhere", "bundles"),
        ("PERDURE_STORE", "ftp://nowhere", "store"),
        ("PERDURE_GRACE", "soon", "settings"),
        ("TEMPORAL_PROFILE", "nowhere", "server"),
        ("TEMPORAL_ADDRESS", ":::nowhere", "server"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_a_finding_and_hides_no_other(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, check: str
) -> None:
    for name, usual in {**stack.environment, variable: value}.items():
        monkeypatch.setenv(name, usual)
    found = await checkup(*read_usable())
    bad = [each for each in found if each.check == check and each.state == "bad"]
    assert len(bad) == 1
    assert variable.partition("_")[0] in bad[0].said
    assert bad[0].remedy.startswith("mend ")
    service = {"namespace", "search attributes", "workers", "versions", "runs", "codec"}
    wanted = {"tools", "isolation", "store", "bundles", "server"} | (service if check != "server" else set())
    assert wanted <= {each.check for each in found}


async def test_runs_without_a_worker_for_their_build_hide_no_other_stuck_runs(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    stranded = Seen("stranded", "r", "q", now, build="b1")
    runs = [
        OpenRun(stranded, Cause("no_worker", now, "no worker for build b1", "a remedy", failing=True)),
        OpenRun(replace(stranded, workflow_id="broken", build=""), Cause("task_failing", now, "", "mend", True)),
        OpenRun(replace(stranded, workflow_id="fine", build=""), Cause("running", now)),
    ]

    async def listed(client: Client) -> list[OpenRun]:
        return runs

    monkeypatch.setattr(checkups, "open_runs", listed)
    found = await checkups._runs(client)
    assert [(each.state, each.said) for each in found] == [
        ("bad", "no worker for build b1: 1 open runs wait for one (stranded)"),
        ("warn", "1 of 3 open runs are stuck: task_failing"),
    ]


@pytest.mark.all
async def test_the_command_tells_scripts(stack: Stack) -> None:
    done = await stack.shell("perdure doctor --json")
    assert done.returncode == 1, done.stderr
    assert {each["check"] for each in json.loads(done.stdout)} >= {"server", "store", "workers"}
    stack.environment["PERDURE_CODEC"] = "no.such:codec"
    wrong = await stack.shell("perdure doctor --json")
    assert wrong.returncode == 1, wrong.stderr
    assert [each["state"] for each in json.loads(wrong.stdout) if each["check"] == "codec"] == ["bad"]
    del stack.environment["PERDURE_CODEC"]
    stack.environment["TEMPORAL_ADDRESS"] = f"127.0.0.1:{free_port()}"
    gone = await stack.shell("perdure doctor")
    assert gone.returncode == 3
    assert "temporal server start-dev" in gone.stdout
