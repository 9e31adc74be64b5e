"""The typed records of undoing effects: promises to runs that are alive, as those in `records`."""

from pydantic import Field

from workflows.records import EffectRecord, Files, Record, Resolution


class UndoPlanRequest(Record):
    """Input of `effect.plan`: which operations of a thread are to be undone; without an id, all. `left`: that one was
    left by a reset, so that nobody but a person brings it to an end where nobody knows whether it happened. `branched`:
    there may be paths that were left."""

    thread: str
    operation_id: str | None = None
    left: bool = False
    branched: bool = False


class UndoStep(Record):
    """One operation to undo, with its tool and how long that may take in seconds. `doubt`: first of all a person says
    whether it happened."""

    operation_id: str
    tool: str
    timeout: float = 30.0
    by: str | None = None
    doubt: bool = False


class UndoPlan(Record):
    """Output of `effect.plan`: the steps in the order in which they are to be taken, the last effect first; or why
    there is nothing to do. `kept`: effects that cannot be undone, since their tools do not say how. `found`: what is on
    record of the one operation that was asked for, where it may have happened. `branched`: as the request said. `over`:
    effects whose undoing has ended without undoing them; it is tried once."""

    steps: list[UndoStep] = Field(default_factory=list)
    kept: list[str] = Field(default_factory=list)
    over: list[str] = Field(default_factory=list)
    refused: str | None = None
    found: EffectRecord | None = None
    branched: bool = False


class UndoRequest(Record):
    """Input of `effect.undo`. `files`: the state of the workspace, `at`: the turn, as the head's digest. `about`: the
    operation that the resolution is about, the undone one or its undoing."""

    thread: str
    bundle: str
    step: UndoStep
    resolution: Resolution | None = None
    about: str | None = None
    doubt: str = ""
    files: Files = Files()
    at: str = ""
