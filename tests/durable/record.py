"""Records what the durability tests hold the code to, after a change that is meant.

    python -m tests.durable.record schemas      the schemas of the durable records
    python -m tests.durable.record histories [NAME…]
                                                histories of every path, or of these, for this version of the workflow
                                                code
    python -m tests.durable.record replay       replays all recorded histories in this process

Look at the difference before committing it: what is taken out here is a promise to runs that are alive.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.durable.corpus import HISTORIES, PLAYS, histories, replay_all, written
from tests.durable.schemas import DURABLE, name_of, schema_of
from tests.durable.test_schemas import FOLDER
from tests.integration.kit import Stack
from workers.client import DATA_CONVERTER
from workflows.state import WORKFLOW_VERSION


def record_schemas() -> None:
    """Writes the schema of every durable record."""
    FOLDER.mkdir(exist_ok=True)
    for model in DURABLE:
        text = json.dumps(schema_of(model), indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{name_of(model)}.json").write_text(text + "\n")


async def record_histories(names: Sequence[str]) -> None:
    """Plays these paths (or every path) on a server of its own and writes what the server recorded."""
    folder = HISTORIES / WORKFLOW_VERSION
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        EmbeddedTemporal(Path(scratch), port=0, ui_port=0, ui=False) as server,
    ):
        client = await Client.connect(server.address, data_converter=DATA_CONVERTER)
        for name in names or PLAYS:
            stack = Stack(server.address, Path(scratch) / name, f"corpus-{name}")
            try:
                await PLAYS[name](stack, client)
            finally:
                stack.close()
            for number, history in enumerate(await histories(client, name), 1):
                (folder / f"{name}-{number}.json").write_text(written(history))
            sys.stderr.write(f"{name}: recorded\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["schemas"]:
            record_schemas()
        case ["histories", *names]:
            asyncio.run(record_histories(names))
        case ["replay"]:
            asyncio.run(replay_all(sorted(HISTORIES.glob("*/*.json"))))
        case _:
            sys.exit(__doc__)
