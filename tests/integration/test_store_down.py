"""A store that cannot be read parks the run, in so many words, and the run goes on when the store is back."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer
from temporalio.client import Client

from activities.canonical import digest
from tests.integration.kit import Stack, call, pending, say, until
from workflows.catalog import PROBE


def prepare(stack: Stack) -> None:
    stack.script("down", call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("down", ["write_file"])
    stack.serve_model()


async def parked(handle: Any) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        status: dict[str, Any] = await handle.query("status")
        return status if status["status"] == "parked" else None

    found: dict[str, Any] = await until(look, 60, "a parked run")
    return found


async def scheduled(handle: Any) -> list[str]:
    """The activities that the run has asked for, but for its looks at what it waits for."""
    events = [each async for each in handle.fetch_history_events()]
    names = [each.activity_task_scheduled_event_attributes.activity_type.name for each in events]
    return [name for name in names if name not in ("", PROBE.name)]


async def approve(handle: Any) -> None:
    code = (await pending(handle))[0]["code"]
    await handle.execute_update("approve", {"code": code, "by": "ann"})


@pytest.mark.parametrize("decision", ["approve", pytest.param("deny", marks=pytest.mark.all)])
async def test_a_pause_of_a_parked_run_holds_what_was_parked(stack: Stack, client: Client, decision: str) -> None:
    """The tool, or the turn that follows a denial."""
    prepare(stack)
    store, away = stack.folder / "store", stack.folder / "away"
    async with stack.worker():
        handle = client.get_workflow_handle(await stack.start({"goal": "write", "bundle": "down"}))
        code = (await pending(handle))[0]["code"]
        store.rename(away)
        store.write_text("not a folder")
        await handle.execute_update(decision, {"code": code, "by": "ann"})
        await parked(handle)
        before = await scheduled(handle)
        await handle.execute_update("pause", {"by": "ann"})
        store.unlink()
        away.rename(store)

        async def held() -> bool:
            return bool((await handle.query("status"))["status"] == "paused")

        await until(held)
        assert await scheduled(handle) == before, "nothing but the look at the store"
        await handle.execute_update("resume", {"by": "ann"})
        assert (await handle.result())["status"] == "completed"
    assert stack.requests("down") == {"0": 1, "1": 1}


async def test_a_store_folder_that_is_replaced_parks_the_run_until_it_is_back(stack: Stack, client: Client) -> None:
    prepare(stack)
    store, away = stack.folder / "store", stack.folder / "away"
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "down"})
        handle = client.get_workflow_handle(run)
        await pending(handle)
        store.rename(away)
        store.write_text("not a folder")
        await approve(handle)
        status = await parked(handle)
        assert status["waiting_on"] == ["store"]
        assert status["problem"]["type"] == "StoreUnavailable"
        assert "bring the object store back" in status["problem"]["remedy"]
        history = (await handle.fetch_history()).events
        await asyncio.sleep(3)
        assert len((await handle.fetch_history()).events) - len(history) <= 4, "waiting must not fill the history"
        store.unlink()
        away.rename(store)
        result = await handle.result()
    assert result["status"] == "completed"
    assert [(effect["status"], effect["attempts"]) for effect in result["effects"]] == [("COMMITTED", 1)]
    assert stack.requests("down") == {"0": 1, "1": 1}


@pytest.mark.all
async def test_an_s3_server_that_stops_parks_the_run_until_it_starts_again(
    stack: Stack, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(stack)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": url,
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="down")
    stack.environment["PERDURE_STORE"] = "s3://down/prefix"
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "down"})
        handle = client.get_workflow_handle(run)
        await pending(handle)
        server.stop()
        await approve(handle)
        assert (await parked(handle))["waiting_on"] == ["store"]
        server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
        server.start()
        result = await handle.result()
    server.stop()
    assert result["status"] == "completed"
    assert [effect["status"] for effect in result["effects"]] == ["COMMITTED"]


def resealed(record: bytes, **changes: Any) -> bytes:
    """The record with other fields and a digest that fits them."""
    body = {**json.loads(record), **changes}
    del body["sha256"]
    return json.dumps({**body, "sha256": digest(body)}).encode()


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "future schema": (lambda held: resealed(held, schema=99), "schema 99"),
    "cut off": (lambda held: held[: len(held) // 2], "cannot be read"),
    "a byte altered": (lambda held: held.replace(b"write_file", b"write_filf", 1), "does not have its digest"),
    "number against name": (lambda held: resealed(held, sequence=2), "/2"),
    "another digest": (lambda held: resealed(held, timestamp="2026-01-01"), "not the one that the run recorded"),
    "empty digest": (lambda held: json.dumps({**json.loads(held), "sha256": ""}).encode(), "no digest"),
    "empty file": (lambda _: b"", "cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_newest_checkpoint_parks_the_run_with_no_effect_until_it_is_restored(
    stack: Stack, client: Client, damage: str
) -> None:
    """The newest is number 10 of 10, with 2 and 9 whole beside it: no other is taken in its place."""
    looks = [call("list_files", f"look {number}", path=".") for number in range(9)]
    stack.script("down", *looks, call("write_file", path="a.txt", content="A"), say("done"))
    stack.bundle("down", ["list_files", "write_file"], limits={"same_calls": 50})
    stack.serve_model()
    change, said = DAMAGES[damage]
    async with stack.worker():
        run = await stack.start({"goal": "write", "bundle": "down"})
        handle = client.get_workflow_handle(run)
        await pending(handle)
        [newest] = (stack.folder / "store").rglob("checkpoints/*/00000010.json")
        held = newest.read_bytes()
        newest.write_bytes(change(held))
        await approve(handle)
        status = await parked(handle)
        assert status["problem"]["type"] == "CheckpointDamaged"
        assert "00000010.json" in status["problem"]["message"]
        assert said in status["problem"]["message"]
        assert not list((stack.folder / "workspaces").rglob("a.txt"))
        assert not [path for path in (stack.folder / "store").rglob("effects/*/*") if path.is_file()]
        assert stack.requests("down") == {str(number): 1 for number in range(10)}
        newest.write_bytes(held)
        result = await handle.result()
    assert result["status"] == "completed"
    assert [(effect["status"], effect["attempts"]) for effect in result["effects"]] == [("COMMITTED", 1)]
