"""The records of what passes between a parent and its children: promises, as those in `records`."""

from typing import Any

from pydantic import ConfigDict, Field

from workflows.lineage import Child, OnClose, Parent
from workflows.records import Record, Ref, Usage

REPORTED = 20
"""The most open requests that one report lists; `perdure pending` asks each owner for all."""


class ChildStart(Record):
    """A child that is to be started: `given` is its input, as a person would give it, without `parent`. `asked`: what
    makes two starts the same one, where the words of `given` are a release's own."""

    child: str
    given: dict[str, Any]
    parent: Parent
    on_close: OnClose = "cancel"
    asked: str | None = None


class ChildRequest(Record):
    """Input of `child.watch` and `child.end`. `call`, `tool`: the call that the child's result answers in `thread`;
    `edited_by`: who edited its arguments; `last`: what the child said last of what it has used."""

    child: Child
    thread: str = ""
    call: str = ""
    tool: str = ""
    edited_by: str | None = None
    last: dict[str, float] = Field(default_factory=dict)


class ChildEnd(Record):
    """Output of `child.end`: the end as an answer for the model, and what it cost, with all below it. `used` is by the
    names of the limits. `status`: a result's, or `failed`, `cancelled`, `terminated`, `timed_out`, `gone`. `structured`
    is left out where it is long."""

    status: str
    answer: Ref | None = None
    used: dict[str, float] = Field(default_factory=dict)
    usage: Usage = Usage()
    structured: Any = None


class Asked(Record):
    """An open request of a child, as its query `pending` shows it: `owner` is the run that decides it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    code: str
    kind: str
    question: str
    asked_at: str
    owner: str
    operation_id: str | None = None
    tool: str | None = None
    arguments: Any = None
    deadline: str | None = None
    reason: str | None = None
    commands: dict[str, str]


class ChildReport(Record):
    """The signal `child`: what a child and those below it ask of people now, and what they have used."""

    child: str = Field(min_length=1, max_length=1000)
    pending: list[Asked] = Field(default_factory=list, max_length=REPORTED)
    used: dict[str, float] = Field(default_factory=dict)
    ended: bool = False
