"""Fixtures: one real Temporal server for the session, one stack for each test."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.integration.kit import Stack, replay
from tests.integration.traced import telemetry_in_memory
from workers.client import DATA_CONVERTER
from workers.telemetry import Telemetry


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTemporal]:
    """A real development server with its database in a file, shared by all tests."""
    folder = tmp_path_factory.mktemp("temporal")
    with EmbeddedTemporal(folder, port=0, ui_port=0, ui=False, say=lambda _: None) as running:
        yield running


@pytest.fixture
def telemetry() -> Telemetry:
    """Traces into memory."""
    return telemetry_in_memory()


@pytest.fixture
async def client(server: EmbeddedTemporal) -> Client:
    """A client of the shared server."""
    return await Client.connect(server.address, data_converter=DATA_CONVERTER)


@pytest.fixture
async def stack(
    server: EmbeddedTemporal, client: Client, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Stack]:
    """Perdure for this test. At the end every run that it started is replayed."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    made = Stack(server.address, tmp_path, name)
    yield made
    made.close()
    await replay(client, made.runs, made.converter(worker=True))
