"""The converters of payloads."""

import json
import re

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import WorkflowSerializationContext

from activities.store import open_store
from workers.client import data_converter
from workers.storage import PayloadUnavailable


def test_converters_take_no_context() -> None:
    """`PlainRunner` gives them none: who adds a codec that wants one must take that away again."""
    converter = data_converter(open_store("memory://"), worker=True)
    context = WorkflowSerializationContext(namespace="default", workflow_id="run-1")
    assert converter.with_context(context) is converter


async def test_what_the_store_made_is_read_and_what_calls_itself_a_reference_stays_as_it_came() -> None:
    converter = data_converter(open_store("memory://"), worker=True)
    large = "x" * 700_000
    [reference] = await converter.encode([large])
    assert len(reference.data) < 1000
    assert await converter.decode([reference], [str]) == [large]
    former = Payload(metadata={"encoding": b"json/external-storage-reference"}, data=_former(reference))
    assert await converter.decode([former], [str]) == [large]
    gone = Payload.FromString(reference.SerializeToString())
    gone.data = re.sub(rb"[0-9a-f]{64}", b"a" * 64, reference.data)
    with pytest.raises(PayloadUnavailable):
        await converter.decode([gone], [str])
    made_up = Payload.FromString(reference.SerializeToString())
    made_up.data = reference.data.replace(b"perdure.store", b"elsewhere")
    [left, read] = await converter._external_retrieve_payload_sequence([made_up, reference])
    assert left == made_up
    assert json.loads(read.data) == large


def _former(reference: Payload) -> bytes:
    now = json.loads(reference.data)
    return json.dumps({"driver_name": now["driverName"], "driver_claim": {"claim_data": now["claimData"]}}).encode()
