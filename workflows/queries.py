"""The queries of a run: small JSON, whatever the run remembers."""

from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from workflows.child_records import Asked
from workflows.display import below_view, pending_view, status_view
from workflows.fitting import fitting
from workflows.forks import answers_so_far
from workflows.messages import decode_json, loads
from workflows.requests import KEPT, Request
from workflows.showing import Showing


def last_wanted(value: RawValue | None, rest: tuple[Any, ...]) -> int:
    """How many entries are wanted: `{"last": n}`, 50 at most. Raises ValueError for anything else."""
    count: int = _wanted(value, rest, "last").get("last", KEPT)
    return count


def _wanted(value: RawValue | None, rest: tuple[Any, ...], *names: str) -> dict[str, Any]:
    """What a query was given, by these names: a `code`, else numbers; of `last` 50 at most. Raises ValueError."""
    try:
        body = None if value is None and not rest else decode_json(value)
        if isinstance(body, str):
            body = loads(body)
        if body is None and not rest:
            return {}
        if rest or not isinstance(body, dict) or not body.keys() <= set(names):
            raise ValueError("something else was given")
        code = {"code": body.pop("code")} if "code" in body else {}
        if any(type(each) is not str for each in code.values()):
            raise ValueError("a code is a text")
        if any(type(number) is not int or number < 0 for number in body.values()):
            raise ValueError("a whole number is wanted")
        return code | {name: min(number, KEPT) if name == "last" else number for name, number in body.items()}
    except ValueError as error:
        given = " or ".join('{"code": "K7Q2"}' if name == "code" else f'{{"{name}": n}}' for name in names)
        raise ValueError(f"a list query takes {given} or nothing: {error}") from None


def _tail(entries: list[Any], count: int) -> list[Any]:
    return entries[-count:] if count else []


class Queries(Showing):
    """Read only."""

    @workflow.query(name="status", description="What the run does and waits for, its budget and usage")
    def status(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        """The run in one object."""
        return status_view(self.state, self.shown_status())

    @workflow.query(
        name="pending", description='What people are asked. Input: {"last": n}, for more {"skip": n}, or {"code": …}'
    )
    def pending(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The open requests of the run, then those of its children; in each the oldest first. Of more than 50 the last
        50 of the run itself, and of its children as many as there is room for; `skip` gives 50 after the first ones,
        `code` one. Texts are cut where the answer would be too long for the plain CLI to read."""
        wanted, workflow_id = _wanted(value, rest, "last", "skip", "code"), workflow.info().workflow_id
        own, below = self.state.requests.open(), self.state.family.pending()
        asked: list[Request | Asked] = [*own, *below]
        count, skip, code = wanted.get("last", KEPT), wanted.get("skip"), wanted.get("code")
        if code is not None:
            asked = [each for each in asked if each.code == code.upper()]
        elif skip is not None:
            asked = asked[skip : skip + count]
        else:
            kept = _tail(own, count)
            asked = [*kept, *_tail(below, count - len(kept))]

        def view(each: Request | Asked, longest: int | None) -> dict[str, Any]:
            if isinstance(each, Asked):
                return below_view(each, longest)
            return pending_view(each, workflow_id, self.state, longest)

        return fitting(lambda longest: [view(each, longest) for each in asked])

    @workflow.query(name="transcript", description='The last messages, as previews. Input: {"last": n}')
    def transcript(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """What was said, as previews."""
        return _tail(self.state.steps.last, last_wanted(value, rest))

    @workflow.query(name="effects", description='The last effects, with their state. Input: {"last": n}')
    def effects(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """What was done to the outside world."""
        return _tail([effect.model_dump() for effect in self.state.all_effects()], last_wanted(value, rest))

    @workflow.query(name="decisions", description='The last decisions, refused messages too. Input: {"last": n}')
    def decisions(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """Who decided what, and by which message."""
        return _tail([entry.model_dump(mode="json") for entry in self.state.requests.log], last_wanted(value, rest))

    @workflow.query(name="handoff", description="What the last session handed over; null before the first handoff")
    def handoff(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any] | None:  # type: ignore[assignment]
        """The last handoff."""
        return self.state.handoff

    @workflow.query(name="position", description="For forks: the last checkpoint, and what was answered since")
    def position(self, value: RawValue = None, *rest: RawValue) -> dict[str, Any]:  # type: ignore[assignment]
        """Where the run stands."""
        head = self.state.head
        answers = [item.model_dump() for item in answers_so_far(self.state) if item.call is not None]
        return {"head": None if head is None else head.model_dump(), "answers": answers}

    @workflow.query(name="checkpoints", description='The last checkpoints. Input: {"last": n}')
    def checkpoints(self, value: RawValue = None, *rest: RawValue) -> list[dict[str, Any]]:  # type: ignore[assignment]
        """The last checkpoints."""
        return _tail(self.state.checkpoints.last, last_wanted(value, rest))
