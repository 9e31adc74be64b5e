"""A payload codec for the tests, as a user writes one: AES-GCM, and what it has not encoded passes through."""

import os
from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

ENCODING = b"binary/encrypted"


class Sealing(PayloadCodec):
    """The key stands in SEALING_KEY, 32 digits."""

    def __init__(self) -> None:
        self._key = AESGCM(os.environ["SEALING_KEY"].encode())

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._seal(each) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._open(each) if each.metadata.get("encoding") == ENCODING else each for each in payloads]

    def _seal(self, payload: Payload) -> Payload:
        nonce = os.urandom(12)
        data = nonce + self._key.encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCODING}, data=data)

    def _open(self, payload: Payload) -> Payload:
        return Payload.FromString(self._key.decrypt(payload.data[:12], payload.data[12:], None))
