"""Histories from wherever they are: a run's executions, a query's matches, and files as people download them."""

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseError
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory, WorkflowHistoryEventFilterType
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

_PLAIN = ("binary/null", "binary/plain", "binary/protobuf")
_PAYLOAD_KEYS = {"metadata", "data", "externalPayloads"}


class Unreadable(Exception):
    """A file, or a history, that cannot be replayed as it is. The message names the reason and the remedy."""


async def executions(client: Client, workflow_id: str, run_id: str | None = None) -> list[tuple[str, str]]:
    """The executions of a run, oldest first, as they name each other: the one that it continues, and after a reset the
    one that was reset, with what that had gone on as. Those that the service has deleted are left out. Raises RPCError
    for no such run."""
    found: list[tuple[str, str]] = []
    wanted = [run_id or (await client.get_workflow_handle(workflow_id).describe()).run_id or ""]
    while wanted:
        run_id = wanted.pop(0)
        if not run_id or (workflow_id, run_id) in found:
            continue
        try:
            related = await _related(client, workflow_id, run_id)
        except RPCError as error:
            if not found or error.status != RPCStatusCode.NOT_FOUND:
                raise
            continue
        found.append((workflow_id, run_id))
        wanted += related
    return found[::-1]


async def _related(client: Client, workflow_id: str, run_id: str) -> list[str]:
    """The executions that this one names, the newest first: those that resets left, what it went on as, what it
    continues. Of one that was not reset only the two ends are read."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    resets, after, before, copied = list[str](), list[str](), "", False
    async for event in handle.fetch_history_events(page_size=1):
        started = event.workflow_execution_started_event_attributes
        before, copied = started.continued_execution_run_id, started.original_execution_run_id != run_id
        break
    if copied:  # a reset copies the events up to its point, and then names the execution that it was made of
        async for event in handle.fetch_history_events():
            if base := event.workflow_task_failed_event_attributes.base_run_id:
                resets.insert(0, base)
    async for event in handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
        after.append(event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id)
    return [*resets, *after, before]


async def matching(client: Client, query: str) -> AsyncIterator[tuple[str, str]]:
    """The executions (workflow id, run id) that a query finds. Raises RPCError."""
    async for row in client.list_workflows(query, page_size=1000):
        yield row.id, row.run_id


def read_history(path: Path) -> WorkflowHistory:
    """A history file: what `temporal workflow show -o json` prints, or the Web UI's download. Raises Unreadable."""
    try:
        return _read_history(path)
    except RecursionError:
        raise Unreadable(f"{path} is nested too deeply for a history as Temporal writes it") from None


def _read_history(path: Path) -> WorkflowHistory:
    try:
        body = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Unreadable(f"{path} is no JSON, or only the beginning of it ({error}): download it again") from None
    if isinstance(body, list):
        body = {"events": body}
    if not isinstance(body, dict) or not isinstance(body.get("events"), list) or not body["events"]:
        raise Unreadable(f"{path} holds no events: save it with `temporal workflow show -w RUN -o json > FILE`")
    if _is_decoded(body["events"]):
        raise Unreadable(
            f"{path} was downloaded decoded, which cannot be replayed: download it again with `Decode Event History` "
            "unticked, or save it with `temporal workflow show -w RUN -o json > FILE`"
        )
    try:
        history = WorkflowHistory.from_json(path.stem, body)
    except (ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{path} is no history as Temporal writes it: {str(error).splitlines()[0][:300]}") from None
    return WorkflowHistory(_own_id(history) or path.stem, history.events)


def _own_id(history: WorkflowHistory) -> str:
    return str(history.events[0].workflow_execution_started_event_attributes.workflow_id)


def _is_decoded(value: Any) -> bool:
    """Whether payloads stand there as plain values: as the Web UI decodes them."""
    if isinstance(value, list):
        return any(_is_decoded(each) for each in value)
    if not isinstance(value, dict):
        return False
    for key, each in value.items():
        if key == "payloads" and isinstance(each, list) and not all(_is_payload(one) for one in each):
            return True
        if _is_decoded(each):
            return True
    return False


def _is_payload(value: Any) -> bool:
    whole = isinstance(value, dict) and set(value) <= _PAYLOAD_KEYS
    return whole and isinstance(value.get("data", ""), str) and isinstance(value.get("metadata", {}), dict)


async def check(history: WorkflowHistory, converter: DataConverter) -> None:
    """Raises Unreadable for what cannot be replayed: not a whole beginning, or encoded by another codec than the
    configured one."""
    numbers = [event.event_id for event in history.events]
    if not numbers:
        raise Unreadable(f"{history.workflow_id} has no events")
    gap = next((want for want, number in enumerate(numbers, 1) if want != number), None)
    if gap is not None or not history.events[0].HasField("workflow_execution_started_event_attributes"):
        raise Unreadable(f"the history of {history.workflow_id} lacks event {gap or 1}: fetch it whole, from the first")
    encoded = {_encoding(each): each for event in history.events for each in _payloads(event) if _is_encoded(each)}
    if encoded and (fault := await _unread(converter, next(iter(encoded.values())))) is not None:
        raise Unreadable(
            f"the history of {history.workflow_id} is encoded ({', '.join(sorted(encoded))}), and {fault}: run this "
            "with the settings of the worker that wrote it"
        )


async def _unread(converter: DataConverter, payload: Payload) -> str | None:
    if converter.payload_codec is None:
        return "no codec is configured here"
    try:
        await converter.payload_codec.decode([payload])
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        return f"the configured codec cannot decode it ({type(error).__name__})"
    return None


def _encoding(payload: Payload) -> str:
    return payload.metadata.get("encoding", b"").decode("utf-8", "replace")


def _is_encoded(payload: Payload) -> bool:
    """Whether no converter of ours reads it by itself."""
    return _encoding(payload).startswith("binary/") and _encoding(payload) not in _PLAIN


def _payloads(message: Any) -> Iterable[Any]:
    """Every payload inside a protobuf message."""
    if message.DESCRIPTOR.full_name == "temporal.api.common.v1.Payload":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [each for each in value.values() if hasattr(each, "DESCRIPTOR")]
        else:
            values = [value] if hasattr(value, "DESCRIPTOR") else list(value)
        for each in values:
            yield from _payloads(each)
