"""How many open runs wait for what, for a measure: a few counts of visibility, once a minute."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workers.open_runs import OPEN, SHOWN

EVERY = 60.0
_LOG = logging.getLogger(__name__)
QUERIES: Mapping[str, str] = {
    **{kind: f"PerdureWaitingOn = '{kind}'" for kind in SHOWN},
    "paused": "PerdureStatus = 'paused'",
    "parked": "PerdureStatus = 'parked'",
    "task_failing": "TemporalReportedProblems IS NOT NULL",
}


class Waiting:
    """Counts the open runs, and hands the last counts to the meter."""

    def __init__(self, client: Client, meter: Meter) -> None:
        self._client = client
        self._counts: dict[str, int] = {}
        meter.create_observable_gauge(
            "perdure.runs.waiting", [self._observe], "{run}", "Open runs, by what they wait for"
        )

    async def watch(self) -> None:
        """Counts again and again; runs until it is cancelled."""
        while True:
            try:
                await self.count()
            except RPCError as error:
                _LOG.warning("open runs could not be counted: %s", error.message)
            await asyncio.sleep(EVERY)

    async def count(self) -> dict[str, int]:
        """By kind, the open runs that wait for it; `all` is all of them. Without the kinds for which the namespace has
        no search attribute."""
        counts = {"all": (await self._client.count_workflows(OPEN)).count}
        for kind, query in QUERIES.items():
            try:
                counts[kind] = (await self._client.count_workflows(f"{OPEN} AND {query}")).count
            except RPCError as error:
                if error.status != RPCStatusCode.INVALID_ARGUMENT:
                    raise
        self._counts = counts
        return counts

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, {"perdure.waits_for": kind}) for kind, count in self._counts.items()]
