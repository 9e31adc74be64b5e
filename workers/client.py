"""The client, connected as the `temporal` CLI connects, with the converter of the records."""

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError


class Unreachable(Exception):
    """The Temporal service cannot be reached. The message names the address and the remedy."""


class SlimPayloadConverter(PydanticPayloadConverter):
    """Records as JSON without the fields that were left at their defaults: history pays for every byte."""

    def __init__(self) -> None:
        super().__init__(ToJsonOptions(exclude_unset=True))


class WorkerPayloadConverter(SlimPayloadConverter):
    """In a worker, what no type is given for stays as it came. The SDK gives no types for a handler that takes any
    number of inputs, and a value that does not decode there would fail the workflow task for ever."""

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """RawValue for every payload unless types are given."""
        if type_hints is None:
            return [RawValue(payload) for payload in payloads]
        return super().from_payloads(payloads, type_hints)


DATA_CONVERTER = DataConverter(payload_converter_class=SlimPayloadConverter)
WORKER_DATA_CONVERTER = DataConverter(payload_converter_class=WorkerPayloadConverter)


async def connect(converter: DataConverter = DATA_CONVERTER) -> Client:
    """A client by the TEMPORAL_* variables and profiles. Raises Unreachable."""
    config = ClientConfigProfile.load().to_client_connect_config()
    target = config.get("target_host") or "localhost:7233"
    config["target_host"] = target
    try:
        return await Client.connect(**config, data_converter=converter)
    except (RPCError, RuntimeError) as error:
        raise Unreachable(
            f"no Temporal service answers at {target} ({str(error).splitlines()[0][:200]}); "
            "start one with `temporal server start-dev`, or set TEMPORAL_ADDRESS"
        ) from None
