"""The records of the activities beside the loop: `message.judge`, `run.probe` and `model.spent`; see `records`."""

from typing import Any, Literal

from pydantic import Field

from workflows.records import Call, Effect, Files, Head, Limits, Record, Ref


class JudgeRequest(Record):
    """Input of `message.judge`: edited arguments of an approval, or the answer to a question, and what was asked."""

    thread: str
    bundle: str
    head: Head
    call: Call
    kind: Literal["arguments", "answer"]
    value: Any = None


class Verdict(Record):
    """Output of `message.judge`. With `ok`, `body` is the accepted value in the store, `timeout` what a call with these
    arguments may take, and `effect` how it recovers."""

    ok: bool
    reason: str = ""
    body: Ref | None = None
    fingerprint: str | None = None
    request_digest: str | None = None
    summary: str | None = None
    timeout: float | None = None
    wants: Limits | None = None
    effect: Effect | None = None


class ProbeRequest(Record):
    """Input of `run.probe`: what to look at until it is well again. `branch` is the one that the next checkpoint goes
    to, `entries` the digests of the bodies that are new since the head."""

    kind: str
    thread: str
    head: Head | None = None
    bundle: str | None = None
    branch: str = ""
    entries: list[str] = Field(default_factory=list)
    files: Files = Files()


class SpentRequest(Record):
    """Input of `model.spent`: what the model was asked for, turn number `turn` or the handoff that ends session number
    `session`. Output: the usage of all requests for it that are on record."""

    thread: str
    branch: str
    turn: int | None = None
    session: int | None = None
