"""The failures, and whose fault each one is.

    ApplicationError (temporalio)
    └── Failure
        ├── the caller's: InvalidInput, UnknownBundle, BundleConflict
        ├── the model's: ModelRequestRejected, ModelUnavailable, ContextOverflow, InvalidModelOutput
        ├── the record's: CheckpointConflict
        ├── mendable, so the run is parked: CheckpointDamaged, StoreUnavailable, BundleUnavailable, RateLimited,
        │   IncompatiblePayload, NotIsolated, RepositoryUnavailable
        └── passing, so the server tries again: ModelTrouble

What a tool says of itself is not here: it is an answer to the model, not an exception.
"""

import base64
import json
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import quote

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

MESSAGE_BYTES = 4000
"""Failure messages stay under 4 KiB."""


class Failure(ApplicationError):
    """A failure with a name that users may rely on. The class's name is the failure's type."""

    retryable = False
    expected = False
    """Somebody else's fault and told to them: not worth a stack in the worker's log."""

    def __init__(self, message: str, *details: object, retry_after: float | None = None) -> None:
        super().__init__(
            cut(message),
            *details,
            type=type(self).__name__,
            non_retryable=not self.retryable,
            category=ApplicationErrorCategory.BENIGN if self.expected else ApplicationErrorCategory.UNSPECIFIED,
            next_retry_delay=None if retry_after is None else timedelta(seconds=retry_after),
        )


class InvalidInput(Failure):
    """The input of the run is not what the contract says; the message names the field."""

    expected = True


class UnknownBundle(Failure):
    """No bundle of that name or version; the message lists those that exist."""

    expected = True


class BundleConflict(Failure):
    """A bundle folder changed its content without changing its version."""

    expected = True


class BundleUnavailable(Failure):
    """The manifest that the run is pinned to cannot be had."""


class ModelRequestRejected(Failure):
    """The model server refused the request in a way that a retry cannot mend."""


class ModelUnavailable(Failure):
    """The model server failed for longer than the bundle allows."""


class ModelTrouble(Failure):
    """A passing fault of the model server."""

    retryable = True


class WorkspaceUnavailable(Failure):
    """The files of the run's workspace cannot be had: the store lacks one, or the disk does not take it."""


class NotIsolated(Failure):
    """This worker cannot isolate commands, and the project's own ask nobody."""


class RepositoryUnavailable(Failure):
    """The repository of the project cannot be read or written on this worker."""


class RateLimited(Failure):
    """The model server asked for a longer wait than the bundle's cap, or the account has no quota left. The first
    detail is the wait in seconds."""


class ContextOverflow(Failure):
    """The context is too long for the model."""


class InvalidModelOutput(Failure):
    """The model server keeps answering what is no answer, or is never whole."""


class CheckpointDamaged(Failure):
    """A checkpoint is missing, has another digest, or a schema that this release does not know."""


class CheckpointConflict(Failure):
    """Another record stands under the same key. Neither is chosen."""


class IncompatiblePayload(Failure):
    """A stored record, or the input of an activity, does not fit the model that reads it."""


class StoreUnavailable(Failure):
    """The object store cannot be reached, or refuses. The store has tried again by itself; now the run is parked."""


def cut(text: str, size: int = MESSAGE_BYTES) -> str:
    """The text in at most `size` bytes of UTF-8, with a mark where it was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return data.decode("utf-8")
    return data[: size - 4].decode("utf-8", "ignore") + " …"


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret of at least six characters replaced."""
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "[redacted]")
    return text


def spellings(secrets: Iterable[str]) -> list[str]:
    """The secrets as they may stand in a text: as they are, for a URL, in JSON and in base64; the longest first."""
    found = set[str]()
    for secret in secrets:
        if len(secret) >= 6:
            encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
            found |= {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], encoded}
    return sorted(found, key=lambda text: (-len(text), text))
