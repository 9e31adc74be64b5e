"""The past of a run, out of the store: its turns in order, with what was new before each and what its calls were
answered."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from activities.checkpoints import Checkpoint, Checkpoints, parent_head
from activities.context import Messages
from activities.entries import Entries
from activities.store import Store
from scripts.commands.running import Refused
from scripts.records import newest, thread_of
from workflows.records import Call, Turn


@dataclass(frozen=True)
class Step:
    """One checkpoint: the opening, or a turn. `new`: what was new in the context before it; `told`: of that, what was
    not said before, since a context that begins anew repeats things; `answers`: what its calls were answered, as far as
    the next checkpoint says so."""

    record: Checkpoint
    new: Messages
    told: Messages
    message: dict[str, Any] | None
    turn: Turn | None
    answers: dict[str, str]

    @property
    def number(self) -> int:
        """The number of the checkpoint, which is that of its turn."""
        return self.record.sequence

    @property
    def calls(self) -> list[tuple[dict[str, Any], Call | None]]:
        """Each call as the context keeps it, with what was decided on it."""
        decided = {call.id: call for call in self.turn.calls} if self.turn else {}
        return [(call, decided.get(call["id"])) for call in (self.message or {}).get("calls", ())]


def split_place(text: str) -> tuple[str, int | None]:
    """`RUN@15` as run and number; a run without a number is meant as it is now. Raises Refused."""
    run, sign, number = text.rpartition("@")
    if not sign:
        return text, None
    if not run or not number.isdecimal():
        raise Refused(f"{text!r} is no place in a run: write RUN@k, where k is the number of a checkpoint")
    return run, int(number)


async def steps_of(store: Store, place: str) -> list[Step]:
    """The path of a run up to `RUN@k`, or to its newest checkpoint: the branch that is alive. Raises Refused for no
    such run or checkpoint, CheckpointDamaged."""
    run, number = split_place(place)
    thread = await thread_of(store, run)
    last = await newest(store, thread)
    if number is not None and number > last.sequence:
        raise Refused(f"{thread} has no checkpoint {number}: its last is {last.sequence}")
    return [step for step in await path_to(store, thread, last) if number is None or step.number <= number]


async def path_to(store: Store, thread: str, last: Checkpoint, after: int = -1) -> list[Step]:
    """The path from the opening, or from number `after` + 1, to a record, each link checked. Raises
    CheckpointDamaged."""
    checkpoints, entries = Checkpoints(store), Entries(store)
    before = parent_head(last)
    records = [*(await checkpoints.chain(thread, before, after) if before else []), last]
    added = [await entries.messages(thread, record.inputs.entries) for record in records]
    found, said = list[Step](), set[str]()
    for index, (record, new) in enumerate(zip(records, added, strict=True)):
        told = [each for each in new if _line(each) not in said] if record.base else new
        message = record.outputs.message
        answers = _answers(message, added[index + 1 : index + 2])
        found.append(Step(record, new, told, message, _turn(record), answers))
        said.update(_line(each) for each in (*new, message or {}))
    return found


def _turn(record: Checkpoint) -> Turn | None:
    try:
        return None if record.outputs.turn is None else Turn.model_validate(record.outputs.turn)
    except ValidationError:
        return None


def _line(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True, ensure_ascii=False)


def _answers(message: dict[str, Any] | None, following: list[Messages]) -> dict[str, str]:
    """To the calls of a message, out of what comes next: a context that begins anew repeats others."""
    told = {each["call"]: each["text"] for new in following for each in new if each["role"] == "tool"}
    calls = (message or {}).get("calls") or ()
    return {call["id"]: told[call["id"]] for call in calls if call["id"] in told}
