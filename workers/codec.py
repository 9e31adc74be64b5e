"""A payload codec of the user's own: what goes into Temporal's history can be encrypted by it.

It sees each payload before the store does, so what is too large for Temporal is kept encoded. Failures are encoded too:
their messages may quote what was said. The bodies in the object store are no payloads: encrypt the bucket, or the disk.
"""

import importlib
import json
from typing import Any

from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    PayloadConverter,
    WithSerializationContext,
)

from workers.settings import SettingsError


def load_codec(name: str) -> PayloadCodec | None:
    """The codec that PERDURE_CODEC names: `module:name` of an instance, or of what makes one without arguments; None
    for no name. Raises SettingsError."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        codec = found if isinstance(found, PayloadCodec) else found()
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        shown = isinstance(error, ImportError | AttributeError | KeyError)  # the words of others may hold a key
        said = f"{type(error).__name__}: {error}" if shown else type(error).__name__
        raise SettingsError(f"PERDURE_CODEC: {name!r} cannot be loaded: {said}") from None
    if not isinstance(codec, PayloadCodec):
        raise SettingsError(f"PERDURE_CODEC: {name!r} is no temporalio.converter.PayloadCodec")
    if isinstance(codec, WithSerializationContext):
        raise SettingsError(f"PERDURE_CODEC: {name!r} wants a serialization context, and gets none here")
    return codec


class EncodedFailures(DefaultFailureConverterWithEncodedAttributes):
    """Failures with their message and stack trace as a payload, which the codec encodes."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """The exception. A worker's converter gives no plain values where no type is known, so they are read here."""
        return super().from_failure(plain(failure), payload_converter)


def plain(failure: Failure) -> Failure:
    """A failure with its message back in its place, after the codec has decoded it; not its causes'."""
    if not failure.HasField("encoded_attributes"):
        return failure
    shown = Failure()
    shown.CopyFrom(failure)
    try:
        said: Any = json.loads(failure.encoded_attributes.data)
        shown.message, shown.stack_trace = str(said["message"]), str(said["stack_trace"])
    except (ValueError, TypeError, KeyError):
        return failure  # by a codec that is not here
    shown.ClearField("encoded_attributes")
    return shown


async def decode_failure(converter: DataConverter, failure: Failure) -> None:
    """Puts the messages of a failure and of its causes back in their places."""
    if converter.payload_codec is not None:
        await converter.payload_codec.decode_failure(failure)
        at: Failure | None = failure
        while at is not None:
            at.CopyFrom(plain(at))
            at = at.cause if at.HasField("cause") else None
