"""Where everything of one thread lives. A thread is one logical start of a run.

The name is `<workflow id>.<start>`: the start is taken from the end of the first execution's run id, which Temporal
keeps over resets, retries and continue-as-new. (Run ids are UUIDv7: their first digits are the time.)
"""

import hashlib
import re

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,80}")


def safe_id(text: str) -> str:
    """The id itself where it fits `[A-Za-z0-9_-]{1,80}`; else a short readable prefix and the digest of the whole."""
    if _SAFE.fullmatch(text):
        return text
    prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:15].strip("-")
    return f"{prefix or 'id'}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def thread_name(workflow_id: str, first_execution_run_id: str) -> str:
    """For example `run-83.9c41d07be2f5`; safe in every path, key and header."""
    return f"{safe_id(workflow_id)}.{safe_id(first_execution_run_id)[-12:]}"


def folder(thread: str) -> str:
    """The folder of a thread in the store."""
    workflow_id, _, start = thread.rpartition(".")
    return f"threads/{workflow_id}/{start}"


def checkpoint_key(thread: str, branch: str, sequence: int) -> str:
    """The number is zero-padded for people; readers parse it and order by number."""
    return f"{folder(thread)}/checkpoints/{branch}/{sequence:08d}.json"


def segment_key(thread: str, branch: str, sequence: int) -> str:
    """A segment is named by the last checkpoint that it packs."""
    return f"{folder(thread)}/segments/{branch}/{sequence:08d}.json.zz"


def entry_key(thread: str, digest: str) -> str:
    """Bodies are named by their digest."""
    return f"{folder(thread)}/entries/{digest}"


def file_key(thread: str, digest: str) -> str:
    """The contents of the workspace's files are named by their digest."""
    return f"{folder(thread)}/files/{digest}"


def earlier_key(thread: str, operation_id: str) -> str:
    """What a file held before an operation changed it."""
    return f"{folder(thread)}/earlier/{operation_id.removeprefix(thread + ':').replace(':', '_')}.json"


def effect_folder(thread: str, operation_id: str) -> str:
    """The folder of one operation's records: `<tool>_<number>`, with a branch where the number was taken."""
    return f"{folder(thread)}/effects/{operation_id.removeprefix(thread + ':').replace(':', '_')}"


def operation_id(thread: str, tool: str, number: int) -> str:
    """Made once from the run's own count of calls of the tool; never from an attempt, a clock or the model."""
    return f"{thread}:{tool}:{number}"


def branched_id(operation_id: str, branch: str) -> str:
    """The id of an operation whose number was used for another request on a path that was left."""
    return f"{operation_id.partition('~')[0]}~{branch}"


def undo_id(operation_id: str) -> str:
    """The operation that undoes another one: there is at most one."""
    return f"{operation_id}:undo"


def child_id(operation_id: str) -> str:
    """The workflow id of the sub-agent that an operation starts, for example `run-83-9c41d07be2f5-delegate-4`."""
    return re.sub(r"[.:~]", "-", operation_id)


def requests_folder(workflow_id: str, request_digest: str) -> str:
    """Where the operations that were asked to do this very request are noted, over all starts of one workflow id;
    `workflow_id` as the name of a thread has it."""
    return f"threads/{workflow_id}/requests/{request_digest}"


def request_key(thread: str, operation_id: str, request_digest: str) -> str:
    """The note of one operation: `<start>.<tool>_<number>`."""
    workflow_id, _, start = thread.rpartition(".")
    name = operation_id.removeprefix(thread + ":").replace(":", "_")
    return f"{requests_folder(workflow_id, request_digest)}/{start}.{name}"
