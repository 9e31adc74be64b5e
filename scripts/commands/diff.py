"""`perdure diff RUN@k RUN2@j`: two paths, from the last checkpoint that they have in common."""

import difflib
import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from activities.context import Messages
from activities.errors import Failure
from activities.store import open_store
from scripts.commands.running import DONE, NO, Refused, plain, run
from scripts.past import Step, steps_of
from workers.settings import read_settings

STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff(
    one: Annotated[str, typer.Argument(metavar="RUN@k", help="a path up to checkpoint k; without @k, to its newest")],
    other: Annotated[str, typer.Argument(metavar="RUN2@j", help="another one: of the same run, or of a fork")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """Compare two paths from their common checkpoint on. Exit code 1 when they differ, as `diff` has it."""
    run(_diff(one, other, as_json))


async def _diff(one: str, other: str, as_json: bool) -> int:
    store = open_store(read_settings().store)
    try:
        left, right = await steps_of(store, one), await steps_of(store, other)
    except Failure as error:
        raise Refused(error.message) from None
    common = common_steps(left, right)
    before, after = lines_of(left, common), lines_of(right, common)
    if as_json:
        body = {
            "common": common - 1 if common else None,
            "one": [_view(step) for step in left[common:]],
            "other": [_view(step) for step in right[common:]],
        }
        json.dump(body, sys.stdout, ensure_ascii=False, indent=1)
        print()
    else:
        out = Console(emoji=False, highlight=False, soft_wrap=True)
        out.print(Text(_head(one, other, common, left, right)))
        for line in list(difflib.unified_diff(before, after, one, other, lineterm="", n=2)):
            out.print(Text(plain(line), style=STYLES.get(line[:1], "")))
    return NO if before != after else DONE


def common_steps(left: list[Step], right: list[Step]) -> int:
    """How many checkpoints from the beginning say the same."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if not same(a, b)), min(len(left), len(right)))


def same(a: Step, b: Step) -> bool:
    """Whether two checkpoints are the same record, or say the same."""
    if a.record.sha256 == b.record.sha256:
        return True
    return (a.record.inputs.entries, a.message) == (b.record.inputs.entries, b.message)


def lines_of(steps: list[Step], common: int) -> list[str]:
    """The transcript after the common part, line by line."""
    found: list[str] = []
    for step in steps[common:]:
        found += _said(step.told)
        found.append(f"turn {step.number}: {(step.message or {}).get('text', '')}".rstrip())
        found += [f"  call {call['tool']} {call['arguments']}" for call, _ in step.calls]
    if steps[-1].number + 1 > common and (answers := steps[-1].answers):
        found += [f"  answer {call}: {text}" for call, text in answers.items()]
    return [line for text in found for line in text.splitlines() or [""]]


def _said(messages: Messages) -> list[str]:
    return [
        f"  answer {each['call']}: {each['text']}"
        if each["role"] == "tool"
        else f"{each.get('by', 'system')}: {each['text']}"
        for each in messages
    ]


def _head(one: str, other: str, common: int, left: list[Step], right: list[Step]) -> str:
    at = f"common up to checkpoint {common - 1}" if common else "nothing in common"
    return f"{at}; then {len(left) - common} turns of {one}, {len(right) - common} of {other}"


def _view(step: Step) -> dict[str, Any]:
    return {
        "checkpoint": step.number,
        "sha256": step.record.sha256,
        "new": step.told,
        "message": step.message,
        "answers": step.answers,
        "bundle": step.record.versions.get("bundle"),
    }
