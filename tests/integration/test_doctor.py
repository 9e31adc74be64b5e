"""`perdure doctor`: every part by itself, with the command that mends it."""

import json
from typing import Any

import pytest
from temporalio.client import Client

from activities.store import LocalStore
from scripts.embedded import free_port
from tests.integration.kit import Stack, say, until
from workers import checkup as checkups
from workers.checkup import Finding, checkup


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


@pytest.mark.all
async def test_the_command_tells_scripts(stack: Stack) -> None:
    done = await stack.shell("perdure doctor --json")
    assert done.returncode == 1, done.stderr
    assert {each["check"] for each in json.loads(done.stdout)} >= {"server", "store", "workers"}
    stack.environment["TEMPORAL_ADDRESS"] = f"127.0.0.1:{free_port()}"
    gone = await stack.shell("perdure doctor")
    assert gone.returncode == 3
    assert "temporal server start-dev" in gone.stdout
