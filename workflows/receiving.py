"""What is the same for every message, to a run or to a project: an update and a signal of its name, and a validator."""

import unicodedata
from collections.abc import Sequence
from typing import Any, ClassVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows import messages as m

Answer = dict[str, Any]
Source = dict[str, str | None]

MANY_UPDATES, MOST_UPDATES = 1800, 1980
"""The server takes 2,000 updates of one execution: from the first number on it is time to roll over, at the second
updates are refused, with the command that sends the same as a signal."""

NAMES_IN_SIGHT = "names-in-sight"
"""The patch since which a name with fillers, blanks or tags, which could pass for another, is refused."""

ONE_SPELLING = "names-in-one-spelling"
"""The patch since which a name must be composed: in parts it looks the same and would pass for another person."""


class Receiving:
    """`table`: the messages that there are; `updates`: how many this execution took."""

    table: ClassVar[m.Table]
    updates: int

    def answered(self) -> dict[str, Answer]:
        """What updates were answered, by their id."""
        raise NotImplementedError

    def check(self, message: m.Message, first: bool = False) -> None:
        """Raises MessageError for a message that can change nothing."""
        raise NotImplementedError

    async def on_update(self, name: str, payloads: Sequence[RawValue | None]) -> Answer:
        """Applies an update."""
        raise NotImplementedError

    async def on_signal(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Applies a signal."""
        raise NotImplementedError

    def parsed(self, name: str, payloads: Sequence[RawValue | None], first: bool = False) -> m.Message:
        """Raises MessageError for anything that is not exactly that message. `first`: nothing is recorded of it yet."""
        message = m.parse(name, workflow.info().workflow_id, payloads, self.table)
        if m.BLANK.search(message.by) and (first or workflow.patched(NAMES_IN_SIGHT)):
            raise m.MessageError(
                f"{name}: field `by` holds characters that cannot be seen; write the name without them"
            )
        composed = unicodedata.normalize("NFC", message.by)
        if composed != message.by and (first or workflow.patched(ONE_SPELLING)):
            raise m.MessageError(
                f"{name}: field `by` spells the name in parts; write it composed (Unicode NFC): {composed}"
            )
        return message

    def validate(self, name: str, payloads: Sequence[RawValue | None]) -> None:
        """Raises for an update that cannot be used: it is rejected and leaves no trace in history."""
        info, workflow_id = workflow.current_update_info(), workflow.info().workflow_id
        if info is not None and info.id in self.answered():
            return  # sent again over a rollover: it gets the answer that it got
        try:
            message = self.parsed(name, payloads, first=True)
            if self.updates >= MOST_UPDATES:
                signal = m.command(workflow_id, name, message.model_dump(exclude_none=True), "signal")
                raise m.MessageError(f"{name}: this execution can take no more updates. Send: {signal}")
            self.check(message, first=True)
        except m.MessageError as error:
            raise ApplicationError(str(error), type="Rejected", non_retryable=True) from None


def by_signal() -> Source:
    """The source of what a signal says: how long the history is now."""
    return {"via": "signal", "id": str(workflow.info().get_current_history_length())}


def given(value: RawValue | None, rest: Sequence[RawValue]) -> list[RawValue | None]:
    """The payloads of a message or of an input, as they came in."""
    return [] if value is None and not rest else [value, *rest]


def attach(kind: type[Receiving]) -> None:
    """Gives the class an update and a signal for each of its messages."""
    for name in kind.table.kinds:
        _attach(kind, name)


def _attach(kind: type[Receiving], name: str) -> None:
    """A function, so that each handler keeps its own name."""
    description = kind.table.description(name)

    @workflow.update(name=name, description=description)
    async def update(self: Receiving, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        return await self.on_update(name, given(value, rest))

    @update.validator
    def validate(self: Receiving, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        self.validate(name, given(value, rest))

    @workflow.signal(name=name, description=description)
    async def signal(self: Receiving, value: RawValue = None, *rest: RawValue) -> None:  # type: ignore[assignment]
        await self.on_signal(name, given(value, rest))

    setattr(kind, f"{name}_update", update)
    setattr(kind, f"{name}_signal", signal)
