"""A worker inside the bench that counts: store requests and milliseconds of every activity, by what it does."""

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.routing import Router
from activities.store import Store, open_store
from activities.tools import load_tools
from activities.tools.executor import Executor
from activities.world import World
from scripts.benches.model import InProcess
from scripts.benches.rig import Ours
from workers.client import data_converter
from workers.settings import read_settings
from workers.worker import make_workers

_now: ContextVar["Counter[str] | None"] = ContextVar("bench_requests", default=None)


class CountingStore:
    """A store that books its requests on the activity that makes them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, key: str, data: bytes) -> None:
        """Writes."""
        _book("put", len(data))
        await self._store.put(key, data)

    async def put_new(self, key: str, data: bytes) -> bool:
        """Writes unless something is there."""
        _book("put_new", len(data))
        return await self._store.put_new(key, data)

    async def get(self, key: str) -> bytes | None:
        """Reads."""
        _book("get")
        return await self._store.get(key)

    async def keys(self, prefix: str) -> list[str]:
        """Lists."""
        _book("list")
        return await self._store.keys(prefix)

    async def delete(self, prefix: str) -> int:
        """Deletes."""
        _book("delete")
        return await self._store.delete(prefix)


def _book(verb: str, size: int = 0) -> None:
    counts = _now.get()
    if counts is not None:
        counts[verb] += 1
        counts["bytes_written"] += size


@dataclass(eq=False)
class Counted(Interceptor):
    """What every activity took: by its name, and the tool where it runs one."""

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    requests: "dict[str, Counter[str]]" = field(default_factory=lambda: defaultdict(Counter))

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Counts."""
        return _Inbound(next, self)

    def summary(self) -> dict[str, dict[str, Any]]:
        """For each kind: how often, median milliseconds, store requests per time."""
        return {
            kind: {
                "times": len(taken),
                "median_ms": round(median(taken), 2),
                **{verb: round(count / len(taken), 2) for verb, count in sorted(self.requests[kind].items())},
            }
            for kind, taken in sorted(self.milliseconds.items())
        }


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, counted: Counted) -> None:
        super().__init__(following)
        self._counted = counted

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, the SDK's name
        call = getattr(input.args[0], "call", None)
        kind = activity.info().activity_type + (f" {call.tool}" if call is not None else "")
        counts: Counter[str] = Counter()
        token, began = _now.set(counts), time.perf_counter()
        try:
            return await super().execute_activity(input)
        finally:
            self._counted.milliseconds[kind].append((time.perf_counter() - began) * 1000)
            self._counted.requests[kind].update(counts)
            _now.reset(token)


@asynccontextmanager
async def counting_worker(rig: Ours, counted: Counted) -> AsyncIterator[Client]:
    """Serves the installation in this process, with the model inside; gives a client."""
    settings = read_settings(rig.environment)
    store = open_store(settings.store)
    client = await Client.connect(rig.temporal.address, data_converter=data_converter(store, worker=True))
    world = World(
        CountingStore(store),
        load_tools(settings.tool_modules),
        Executor(threads=settings.slots.tools),
        settings.lookup,
        bundle_folders=settings.bundle_folders,
        workspaces=settings.workspaces,
    )
    world.gateway = InProcess(settings.lookup)
    world.router = Router(world.gateway)
    async with AsyncExitStack() as stack:
        stack.callback(world.executor.close)
        for worker in make_workers(client, world, settings, interceptors=[counted]):
            await stack.enter_async_context(worker)
        yield await rig.client()
