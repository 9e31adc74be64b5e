"""What a run takes over from the run that it was forked from, and what an edit changes: bookings of recorded facts."""

from collections.abc import Iterable
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from workflows.fork_records import Edited, Forked, ForkRequest
from workflows.records import Item
from workflows.requests import ALPHABET, new_code
from workflows.state import RunState

PARENT = SearchAttributeKey.for_keyword("PerdureParent")
MEMO = "perdure_parent"


def fork_request(state: RunState) -> ForkRequest:
    """The question that `run.fork` answers."""
    opening = state.opened
    return ForkRequest(
        thread=opening.thread,
        branch=state.branch,
        head=opening.head,
        bundle=opening.bundle,
        repeat=opening.repeat,
        ancestry=opening.ancestry,
    )


def book_fork(state: RunState, forked: Forked) -> None:
    """Begins where the source stood. What it has spent counts only if it was given."""
    state.parent, state.base, state.files, state.session = forked.point, forked.base, forked.files, forked.session
    state.usage, state.used.turns, state.used.tool_calls = forked.usage, forked.turns, forked.tool_calls
    state.inbox = [*forked.said, *state.inbox]
    state.opening = state.opened.model_copy(update={"goal": forked.goal})
    turn = state.turn = forked.turn
    if turn is None:
        return
    for call in turn.calls:
        if call.operation_id is not None:
            state.numbers[call.tool] = state.numbers.get(call.tool, 0) + 1
    calls = [{"id": call.id, "tool": call.tool, "arguments": call.arguments_preview} for call in turn.calls]
    state.steps.add({"role": "assistant", "text": turn.text, "calls": calls, "answers": {}})
    for item in forked.answers:
        state.book_answer(item, item.ref.preview if item.ref else "")


def show_parent(state: RunState) -> None:
    """Says in the memo, and where the namespace has it in a search attribute, which run this one was forked from."""
    assert state.parent is not None
    workflow.upsert_memo({MEMO: parent_view(state)})
    if state.opened.search_attributes:
        workflow.upsert_search_attributes([PARENT.value_set(state.parent.workflow_id)])


def parent_view(state: RunState) -> dict[str, Any] | None:
    """The source as the memo and the result name it."""
    return None if state.parent is None else state.parent.model_dump()


def book_edit(state: RunState, edited: Edited, branch: str) -> None:
    """Goes on with another context, on a branch of its own. The effects of calls that are not in it any more are as
    those of a path that was left: in the world, and not known to the model."""
    state.branch, state.branched, state.left, state.base = branch, True, True, edited.base
    if state.turn is None:
        state.new = []
    else:
        for item in edited.new:
            if item.call in state.answers:
                state.book_answer(item, item.ref.preview if item.ref else "")
    state.inbox = [*edited.said, *state.inbox]
    if edited.goal is not None:
        state.opening = state.opened.model_copy(update={"goal": edited.goal})
    for operation in edited.operations:
        effect = state.effects.pop(operation.operation_id, None) or operation
        state.abandoned[operation.operation_id] = effect.model_copy(update={"abandoned": True})


def mint() -> str:
    """The name of a new branch."""
    return f"{workflow.random().getrandbits(32):08x}"


def mint_code(taken: Iterable[str]) -> str:
    """The code of a new request, from the run's own random source."""
    random = workflow.random()
    return new_code(iter(lambda: random.randrange(len(ALPHABET)), -1), taken)


def answers_so_far(state: RunState) -> list[Item]:
    """What is new since the head: the answers of the turn at hand, or what the next turn is told."""
    if state.turn is None:
        return state.new
    return [state.answers[call.id] for call in state.turn.calls if call.id in state.answers]
