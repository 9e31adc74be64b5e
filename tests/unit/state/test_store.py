"""The store: one contract over a local folder, memory and a real S3 API."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from activities.errors import StoreUnavailable
from activities.store import LocalStore, Store, open_store

S3 = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}


@pytest.fixture(scope="module")
def s3() -> Iterator[ThreadedMotoServer]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    lock, app = threading.Lock(), server._server.app  # type: ignore[union-attr]

    def in_turn(environment: Any, respond: Any) -> Any:
        """S3 decides at once between two writers; this stand-in looks first and writes then."""
        with lock:
            return app(environment, respond)

    server._server.app = in_turn  # type: ignore[union-attr]
    yield server
    server.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "file":
        return open_store((tmp_path / "store").as_uri())
    if request.param == "memory":
        return open_store("memory:///")
    host, port = request.getfixturevalue("s3").get_host_and_port()
    for name, value in {**S3, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(name, value)
    bucket = f"b{abs(hash(request.node.name)) % 10**9}"
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket=bucket)
    return open_store(f"s3://{bucket}/prefix")


async def test_what_was_put_is_read_and_what_was_not_is_none(store: Store) -> None:
    assert await store.get("a/b") is None
    assert await store.keys("a") == []
    await store.put("a/b", b"1")
    await store.put("a/b", b"2")
    assert await store.put_new("a/c", b"3")
    assert not await store.put_new("a/c", b"4")
    assert (await store.get("a/b"), await store.get("a/c")) == (b"2", b"3")


async def test_a_prefix_is_a_folder_and_no_part_of_a_name(store: Store) -> None:
    for key in ("t/run-1/x", "t/run-1/y/z", "t/run-10/x"):
        await store.put(key, b"")
    assert sorted(await store.keys("t/run-1")) == ["t/run-1/x", "t/run-1/y/z"]
    assert await store.delete("t/run-1") == 2
    assert await store.keys("t") == ["t/run-10/x"]
    assert await store.delete("t/nothing") == 0


async def test_of_racing_writers_exactly_one_wins_and_its_content_stays(store: Store) -> None:
    for turn in range(20):
        wins = await asyncio.gather(*(store.put_new(f"race/{turn}", bytes([writer])) for writer in range(8)))
        assert wins.count(True) == 1
        assert await store.get(f"race/{turn}") == bytes([wins.index(True)])


async def test_a_large_body_survives(store: Store) -> None:
    body = bytes(range(256)) * 20_000
    assert await store.put_new("big", body)
    assert await store.get("big") == body


async def test_half_written_files_are_never_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put("a/x", b"whole")
    (tmp_path / "a" / ".0123456789abcdef.tmp").write_bytes(b"ha")
    assert await store.keys("a") == ["a/x"]
    await store.delete("a")
    assert not (tmp_path / "a").exists()


async def test_a_folder_that_is_gone_is_not_an_empty_store(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    assert await store.get("a/x") is None
    await store.put("a/x", b"1")
    (tmp_path / "store").rename(tmp_path / "away")
    for act in (store.get("a/x"), store.keys("a"), store.put("a/y", b""), store.put_new("a/y", b"")):
        with pytest.raises(StoreUnavailable):
            await act
    assert not (tmp_path / "store").exists()
    (tmp_path / "away").rename(tmp_path / "store")
    assert await store.get("a/x") == b"1"


async def test_a_file_in_the_place_of_a_folder_is_unreadable_and_not_absent(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    await store.put("a/x", b"1")
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("in the way")
    for act in (store.get("a/x"), store.keys("a"), store.put_new("a/y", b"")):
        with pytest.raises(StoreUnavailable):
            await act


async def test_a_service_that_does_not_answer_is_unavailable_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {**S3, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://bucket")
    async with asyncio.timeout(25):
        for act in (store.get("a"), store.keys("a"), store.put_new("a", b"")):
            with pytest.raises(StoreUnavailable):
                await act


@pytest.mark.parametrize("url", ["folder", "file://relative/x", "http://x", "file:"])
def test_a_url_of_another_kind_is_refused_by_name(url: str) -> None:
    with pytest.raises(ValueError, match="PERDURE_STORE"):
        open_store(url)


@pytest.mark.parametrize("key", ["", "/a", "a//b", "a/../b", "a/./b"])
async def test_keys_that_lead_outside_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="store key"):
        await LocalStore(tmp_path).get(key)
