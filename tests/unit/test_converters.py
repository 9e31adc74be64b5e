"""The converters of payloads."""

from temporalio.converter import WorkflowSerializationContext

from activities.store import open_store
from workers.client import data_converter


def test_converters_take_no_context() -> None:
    """`PlainRunner` gives them none: who adds a codec that wants one must take that away again."""
    converter = data_converter(open_store("memory://"), worker=True)
    context = WorkflowSerializationContext(namespace="default", workflow_id="run-1")
    assert converter.with_context(context) is converter
