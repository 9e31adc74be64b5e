"""The net under everything: payloads that are too large for Temporal go to the object store, by the SDK's own means.

What a run says and reads is small by design (bodies are entries, history holds digests). This catches what comes from
outside, a goal of 5 MB or an edit of 3 MB, and whatever else grows past a limit.

    threads/<workflow id>/payloads/<sha256>     beside the threads of that workflow id, so that it is deleted with them
"""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from typing import TypeVar, cast

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.canonical import sha256
from activities.errors import StoreUnavailable
from activities.store import Store
from workflows.keys import safe_id
from workflows.strict_json import MARKED, loads

T = TypeVar("T")

THRESHOLD = 512 * 1024
"""Bytes from which a payload is kept out of history. Seven smaller ones fit one task completion (4 MB at most, or the
run is terminated). It is no lower because the plain CLI shows a reference in place of what was moved out."""


NAME = "perdure.store"
"""The driver's name in every reference: a promise to the histories that hold one."""

KEY = re.compile(r"(?:threads/[A-Za-z0-9_-]+/)?payloads/[0-9a-f]{64}")
FORMER = b"json/external-storage-reference"
"""The encoding of references before they were protobuf as JSON."""
REFERENCE = ExternalStorageReference.DESCRIPTOR.full_name.encode()


class PayloadUnavailable(Exception):
    """A payload cannot be stored or read. No failure of the run's: the SDK would end the run with a final one. So the
    workflow task fails, visibly, and the server tries it again until the store, or the payload, is back."""


class StoreDriver(StorageDriver):
    """Keeps payloads in the object store, by digest."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def name(self) -> str:
        """The name in every reference."""
        return NAME

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Stores each once. Raises PayloadUnavailable."""
        return list(await _plainly(asyncio.gather(*(self._put(folder_of(context), each) for each in payloads))))

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Reads them back. Raises PayloadUnavailable, also for one that is gone or altered."""
        return list(await _plainly(asyncio.gather(*(self._get(claim) for claim in claims))))

    async def _put(self, folder: str, payload: Payload) -> StorageDriverClaim:
        data = payload.SerializeToString(deterministic=True)
        digest = sha256(data)
        key = f"{folder}/{digest}"
        await self._store.put_new(key, data)
        return StorageDriverClaim(claim_data={"key": key, "sha256": digest})

    async def _get(self, claim: StorageDriverClaim) -> Payload:
        key, digest = claim.claim_data.get("key", ""), claim.claim_data.get("sha256")
        data = await self._store.get(key)
        if data is None:
            raise PayloadUnavailable(f"payload {key} is missing from the store: restore it from a backup")
        if sha256(data) != digest:
            raise PayloadUnavailable(f"payload {key} has other content than its reference says: restore it")
        return Payload.FromString(data)


async def _plainly(work: Awaitable[T]) -> T:
    try:
        return await work
    except StoreUnavailable as error:
        raise PayloadUnavailable(error.message) from None


def folder_of(context: StorageDriverStoreContext) -> str:
    """Where a payload goes: to the workflow that it is for, or that the activity works for."""
    target = context.target
    owner = target.id if isinstance(target, StorageDriverWorkflowInfo) else None
    return f"threads/{safe_id(owner)}/payloads" if owner else "payloads"


def external_storage(store: Store) -> ExternalStorage:
    """The SDK's setting for this store."""
    return ExternalStorage(drivers=[StoreDriver(store)], payload_size_threshold=THRESHOLD)


class WorkerDataConverter(DataConverter):
    """Fetches what is a reference of ours, and leaves every other one as it came.

    Whoever may signal a run may call anything a reference. The SDK decodes references before a handler sees them, and
    one that cannot be decoded would fail the workflow task for ever; a handler refuses it by its encoding.
    """

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not any(MARKED in each.metadata for each in payloads):
            return cast(list[Payload], payloads)  # the same, so that the SDK copies none of thousands of messages
        return [await self._unmarked(each) for each in payloads]

    async def _unmarked(self, payload: Payload) -> Payload:
        try:
            return (await super()._decode_reference_payload_sequence([payload]))[0]
        except RuntimeError:  # the SDK's word for a marked payload that holds no reference
            return payload

    async def _external_retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        if not any(is_reference(each) for each in payloads):
            return cast(list[Payload], payloads)
        found = list(payloads)
        real = [index for index, each in enumerate(found) if not is_made_up(each)]
        fetched = await super()._external_retrieve_payload_sequence([found[index] for index in real])
        for index, each in zip(real, fetched, strict=True):
            found[index] = each
        return found


def is_reference(payload: Payload) -> bool:
    """Whether a payload calls itself a reference."""
    encoding = payload.metadata.get("encoding")
    return encoding == FORMER or (encoding == b"json/protobuf" and payload.metadata.get("messageType") == REFERENCE)


def is_made_up(payload: Payload) -> bool:
    """Whether a payload calls itself a reference, and is none that `StoreDriver` makes."""
    encoding = payload.metadata.get("encoding")
    if not is_reference(payload):
        return False
    try:
        body = loads(payload.data.decode("utf-8"))
        key = body["driver_claim"]["claim_data"]["key"] if encoding == FORMER else body["claimData"]["key"]
        claim = {"key": key, "sha256": key[-64:]}
        former = {"driver_name": NAME, "driver_claim": {"claim_data": claim}}
        real = former if encoding == FORMER else {"driverName": NAME, "claimData": claim}
        return not (body == real and KEY.fullmatch(key))
    except (ValueError, TypeError, KeyError):
        return True
