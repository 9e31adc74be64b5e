"""The floor: a raw workflow with one eager activity and one local activity per turn, with tiny payloads.

Whatever runs an agent on Temporal by an activity for the model and a quick read pays at least this. It keeps nothing,
and no transcript goes anywhere. `python -m scripts.benches.floor ADDRESS` is its worker.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "floor"
READY = b"floor: ready"


@activity.defn(name="floor.turn")
async def turn(number: int) -> int:
    """Stands for a model."""
    return number


@activity.defn(name="floor.read")
async def read(number: int) -> int:
    """Stands for a tool."""
    return number


@workflow.defn(name="Floor")
class Floor:
    """So many turns."""

    @workflow.run
    async def run(self, turns: int) -> str:
        """The loop."""
        limit = timedelta(seconds=60)
        for number in range(turns):
            await workflow.execute_activity(turn, number, start_to_close_timeout=limit)
            await workflow.execute_local_activity(read, number, start_to_close_timeout=limit)
        return "final answer"


async def _serve(address: str) -> None:
    client = await Client.connect(address)
    worker = Worker(client, task_queue=QUEUE, workflows=[Floor], activities=[turn, read])
    print(READY.decode(), flush=True)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
