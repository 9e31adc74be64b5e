"""The records of `people.notify`: telling people that something waits for them."""

from typing import Any

from pydantic import Field

from workflows.records import Record

NOTICE_FAILED = "NoticeFailed"
"""The type of failure of an attempt that another one may mend. Its message says what is still to be told, and why."""


class NoticeRequest(Record):
    """Input: an open request as the query `pending` shows it, and which of the bundle's times it is: `stage` counts
    them from 0, in order."""

    thread: str
    bundle: str
    item: dict[str, Any]
    goal: str
    stage: int


class Noticed(Record):
    """Output: what could not be told to whom and why, without secrets."""

    failed: list[str] = Field(default_factory=list)
