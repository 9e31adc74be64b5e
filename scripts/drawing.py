"""A run's tree for a terminal."""

import json
from typing import Any

from rich.text import Text
from rich.tree import Tree as Drawn

from activities.canonical import preview
from scripts.commands.running import plain
from scripts.tree import CallNode, Left, Tree, TurnNode
from workflows.messages import command

SHOWN = 110


def draw(tree: Tree, live: dict[str, Any] | None, workflow_id: str, last: int | None, full: bool) -> Drawn:
    """The tree; of each session the last turns only where `last` is given, and texts whole where `full` is."""
    cost = sum(turn.cost_usd for turn in tree.turns)
    state = f" · {state_of(live)}" if live else ""
    head = f"{workflow_id} · {tree.bundle}{state} · {len(tree.turns)} turns, {cost:.4f} USD"
    drawn = Drawn(Text(plain(head), style="bold"))
    drawn.add(_text("goal: ", tree.goal, full))
    if tree.forked_from:
        drawn.add(Text(plain(f"forked from {tree.forked_from}; what it did before that, the source did"), style="cyan"))
    for fault in tree.faults:
        drawn.add(Text(plain(fault), style="red"))
    for number, turns in enumerate(tree.sessions, 1):
        branch = drawn.add(Text(f"session {number}", style="bold")) if len(tree.sessions) > 1 else drawn
        shown = turns if last is None else turns[-last:] if last else []
        if len(shown) < len(turns):
            branch.add(Text(f"… {len(turns) - len(shown)} earlier turns", style="dim"))
        for turn in shown:
            draw_turn(branch, turn, full)
    for left in tree.left:
        _draw_left(drawn, left, workflow_id, full)
    if tree.other:
        branch = drawn.add(Text("effects of calls that are not shown"))
        for effect in tree.other:
            branch.add(Text(plain(f"{effect.operation_id}: {effect.status}")))
    for line in live_lines(live):
        drawn.add(Text(plain(line), style="yellow"))
    return drawn


def draw_turn(branch: Drawn, turn: TurnNode, full: bool) -> None:
    """A turn with its calls, below what was said before it."""
    for who, text in turn.said:
        branch.add(_text(f"{who}: ", text, full, "cyan"))
    tokens = f" ({turn.tokens[0]}+{turn.tokens[1]} tokens)" if any(turn.tokens) else ""
    kind = "" if turn.kind in ("calls", "") else f" {turn.kind}"
    node = branch.add(_text(f"turn {turn.turn}{kind}{tokens} ", turn.text, full))
    for call in turn.calls:
        node.add(call_line(call, full))


def call_line(call: CallNode, full: bool = False) -> Text:
    """A call: its decision, its effect, its answer."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    line = Text(plain(f"{call.id} {call.tool} {_cut(arguments, full)}"))
    line.append(plain(f" · {_cut(call.decision, full)}"), style=_style(call.decision))
    if call.effect is not None:
        outside = f" {call.effect['external_id']}" if call.effect["external_id"] else ""
        style = "green" if call.effect["status"] == "COMMITTED" else "yellow"
        line.append(plain(f" · {call.effect['status']}{outside}"), style=style)
    if call.answer is not None and call.decision != _cut(call.answer, full):
        line.append(plain(f" → {_cut(call.answer, full)}"), style="dim")
    return line


def _style(decision: str) -> str:
    return "dim" if decision == "allowed" else "green" if decision.startswith("approved") else "yellow"


def _draw_left(drawn: Drawn, left: Left, workflow_id: str, full: bool) -> None:
    head = f"left at checkpoint {left.at} (branch {left.branch}), by a reset, a retry or an edit"
    branch = drawn.add(Text(head, style="magenta"))
    for turn in left.turns:
        draw_turn(branch, turn, full)
    for line in left_lines(left, workflow_id):
        branch.add(Text(plain(line), style="magenta"))


def left_lines(left: Left, workflow_id: str) -> list[str]:
    """What a path that was left means for the run."""
    effects = left.effects
    if not effects:
        return ["it did nothing to the world that the run does not know: nothing is left to mind"]
    lines = [f"its {len(effects)} effects stay in the world, though the run's context does not hold them:"]
    lines += [f"  {effect['operation_id']}: {effect['status']}" for effect in effects]
    lines.append("the very same step again gets the recorded result; any other call of these tools asks a person")
    made = [effect["operation_id"] for effect in effects if effect["status"] == "COMMITTED"]
    if made:
        undo = {"operation_id": made[-1], "by": "YOUR-NAME"}
        lines.append(f"to undo one: {command(workflow_id, 'compensate', undo)}")
    return lines


def state_of(live: dict[str, Any]) -> str:
    """Where the run stands, in a few words."""
    waiting = ", ".join(live.get("waiting_on") or [])
    return f"{live['status']}, for {waiting}" if waiting else str(live["status"])


def live_lines(live: dict[str, Any] | None) -> list[str]:
    """What the run asks, what is wrong with it, and its relatives."""
    if live is None:
        return []
    lines = [f"problem: {live['problem']['message']}; {live['problem']['remedy']}"] if live.get("problem") else []
    for item in live.get("pending", []):
        lines.append(f"{item['code']} {item['kind']}: {item['question']}")
        lines += [f"  {text}" for text in item["commands"].values()]
    lines += [f"{each['relation']} {each['workflow_id']}: {each['status']}" for each in live.get("relatives", [])]
    return lines


def decision_lines(decisions: list[dict[str, Any]]) -> list[str]:
    """The run's own log of decisions."""
    return [
        f"{each['at']} {each['code'] or '-'} {each['decision']} by {each['by'] or '-'}"
        + (f": {each['reason']}" if each.get("reason") else "")
        for each in decisions
    ]


def _text(before: str, text: str, full: bool, style: str = "") -> Text:
    return Text(plain(before + _cut(text, full)), style=style)


def _cut(text: str, full: bool) -> str:
    return text if full else preview(text.replace("\n", " "), SHOWN)
