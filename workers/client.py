"""The client, connected as the `temporal` CLI connects, with the converter of the records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, Plugin
from temporalio.common import RawValue
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
)
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError

from activities.store import Store, open_store
from workers.codec import EncodedFailures, load_codec
from workers.misfits import misfit
from workers.settings import Settings, SettingsError, read_settings
from workers.storage import WorkerDataConverter, external_storage


class Unreachable(Exception):
    """The Temporal service cannot be reached. The message names the address and the remedy."""


class SlimJson(PydanticJSONPlainPayloadConverter):
    """Records as JSON without the fields that are at their defaults: history pays for every byte.

    So a default is a promise, as a name is: with another one, old histories would say something else.
    """

    def to_payload(self, value: Any) -> Payload | None:
        """The value as JSON."""
        data = self._schema_serializer.to_json(value, exclude_defaults=True)
        return Payload(metadata={"encoding": self.encoding.encode()}, data=data)


_SLIM = tuple(
    SlimJson() if isinstance(each, JSONPlainPayloadConverter) else each
    for each in DefaultPayloadConverter.default_encoding_payload_converters
)
"""Made once: the SDK makes ten payload converters in a turn, and each would learn the records' types anew."""


class SlimPayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with records as slim JSON."""

    def __init__(self) -> None:
        super().__init__(*_SLIM)


class WorkerPayloadConverter(SlimPayloadConverter):
    """In a worker, what no type is given for stays as it came. The SDK gives no types for a handler that takes any
    number of inputs, and a value that does not decode there would fail the workflow task for ever."""

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """RawValue for every payload unless types are given."""
        if type_hints is None:
            return [RawValue(payload) for payload in payloads]
        try:
            return super().from_payloads(payloads, type_hints)
        except ValidationError as error:
            hint = next((each for each in type_hints if each.__name__ == error.title), None)
            if hint is None or not issubclass(hint, BaseModel):
                raise
            return [misfit(error, hint)] * len(payloads)


DATA_CONVERTER = DataConverter(payload_converter_class=SlimPayloadConverter)
WORKER_DATA_CONVERTER = WorkerDataConverter(payload_converter_class=WorkerPayloadConverter)


def data_converter(store: Store, *, worker: bool = False, codec: PayloadCodec | None = None) -> DataConverter:
    """The converter of clients, or of workers, with what is too large for Temporal in the store."""
    made = replace(WORKER_DATA_CONVERTER if worker else DATA_CONVERTER, external_storage=external_storage(store))
    return made if codec is None else replace(made, payload_codec=codec, failure_converter_class=EncodedFailures)


def converter_of(settings: Settings, *, worker: bool = False) -> DataConverter:
    """The same by the settings. Raises SettingsError."""
    return data_converter(open_store(settings.store), worker=worker, codec=load_codec(settings.codec))


async def connect(settings: Settings | None = None, *, worker: bool = False, plugins: Sequence[Plugin] = ()) -> Client:
    """A client by the TEMPORAL_* variables and profiles, as a worker's or as any other's. Raises Unreachable, and
    SettingsError for what no client can be made of."""
    converter = converter_of(settings or read_settings(), worker=worker)
    try:
        config = ClientConfigProfile.load().to_client_connect_config()
    except (RuntimeError, OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise SettingsError(f"TEMPORAL_…: the variables or the profile cannot be used: {said}") from None
    target = config.get("target_host") or "localhost:7233"
    config["target_host"] = target
    try:
        return await Client.connect(**config, data_converter=converter, plugins=plugins)
    except ValueError as error:
        raise SettingsError(f"TEMPORAL_ADDRESS: {target!r} cannot be used: {error}") from None
    except (RPCError, RuntimeError) as error:
        raise Unreachable(
            f"no Temporal service answers at {target} ({str(error).splitlines()[0][:200]}); "
            "start one with `temporal server start-dev`, or set TEMPORAL_ADDRESS"
        ) from None
