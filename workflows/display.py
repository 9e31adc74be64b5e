"""What people see in the Temporal Web UI: a run's Current Details, in Markdown, and the lines of its timeline."""

import json
import re
from typing import Any

from workflows.child_records import Asked
from workflows.fitting import cut, cut_value, fitting
from workflows.keys import checkpoint_key
from workflows.messages import command
from workflows.records import Call, EffectRecord, ToolAnswer
from workflows.requests import Request, commands, commands_below
from workflows.state import RunState

LAST_STEPS = 5
SHOWN_BELOW = 20
"""Requests of sub-agents in Current Details; the query `pending` has more."""
ARGUMENTS_SHOWN = 6000
"""Characters of a request's arguments in Current Details; the query `pending` has more."""


def details(state: RunState, workflow_id: str, status: str) -> str:
    """State, what is asked of people with the exact commands, what is used, and the last steps."""
    return fitting(lambda longest: _details(state, workflow_id, status, longest))


def _details(state: RunState, workflow_id: str, status: str, longest: int | None) -> str:
    if state.opening is None:
        return "**opening**: reading the input and pinning the bundle"
    used = state.used_now()
    limits = state.limits.model_dump(exclude_none=True)
    budget = ", ".join(f"{name} {number_text(used[name])} of {number_text(limit)}" for name, limit in limits.items())
    lines = [f"**{status}**, turn {state.used.turns}, session {state.session}, bundle {state.opening.bundle.name}@"]
    lines[0] += state.opening.bundle.version
    lines.append(f"Goal:\n{fenced(state.opening.goal)}")
    if state.parent is not None:
        lines.append(f"Forked from checkpoint {state.parent.checkpoint} of\n{fenced(state.parent.workflow_id)}")
    if state.problem is not None:
        lines.append(f"**Problem**:\n{fenced(state.problem.message)}\nRemedy: {state.problem.remedy}")
    if state.paused is not None:
        lines.append(f"**Paused** (`resume` goes on):\n{fenced(state.paused)}")
    if state.abandoned:
        lines.append(_abandoned(list(state.abandoned.values()), workflow_id, state.opened.thread))
    lines += [_asked(request, workflow_id, state, longest) for request in state.requests.open()]
    if state.family.children:
        names = "\n".join(child.workflow_id for child in state.family.children.values())
        lines.append(f"### Sub-agents at work: {len(state.family.children)}\n{fenced(names)}")
    lines += [asked_below(asked, longest) for asked in state.family.pending()[:SHOWN_BELOW]]
    lines.append(f"Used: {budget or 'no limits'}; {number_text(used['tokens'])} tokens, {used['cost_usd']:.4f} USD")
    if state.steps.last:
        lines.append(fenced("\n".join(_step(step) for step in state.steps.last[-LAST_STEPS:])))
    return "\n\n".join(lines)


def fenced(text: str, kind: str = "text") -> str:
    """A text as a code block that it cannot break out of: what a model, a web page or a person wrote is shown, and
    never makes a heading, a link, a picture or a command of its own."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def _asked(request: Request, workflow_id: str, state: RunState, longest: int | None) -> str:
    view = pending_view(request, workflow_id, state, longest)
    until = f" (until {request.deadline.isoformat(timespec='minutes')})" if request.deadline else ""
    lines = [f"### {request.kind} {request.code}{until}", fenced(view["question"])]
    if request.judging is not None:
        lines.append(f"What somebody sent for it is being checked:\n{fenced(request.judging)}")
    if request.kind != "question" and view["reason"] and view["reason"] not in request.question:
        lines.append(f"It asks because:\n{fenced(view['reason'])}")
    if request.call is not None:
        text = view["arguments"]
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False, indent=1)
        lines.append(
            f"{fenced(request.call.operation_id or request.call.tool)}\n{fenced(cut(text, ARGUMENTS_SHOWN), 'json')}"
        )
    if view["arguments_at"]:
        lines.append(
            f"All of the arguments: call {request.call.id if request.call else ''} in `{view['arguments_at']}`"
        )
    if request.untold:
        lines.append(f"Could not be told:\n{fenced(cut(request.untold, longest))}")
    return "\n".join([*lines, *(fenced(line, "bash") for line in view["commands"].values())])


def asked_below(asked: Asked, longest: int | None) -> str:
    """What a child asks, to be decided there."""
    view = below_view(asked, longest)
    lines = [f"### {asked.kind} {asked.code} of a sub-agent", fenced(f"{asked.owner}\n{view['question']}")]
    if asked.arguments is not None:
        text = json.dumps(view["arguments"], ensure_ascii=False, indent=1)
        lines.append(fenced(cut(text, ARGUMENTS_SHOWN), "json"))
    return "\n".join([*lines, *(fenced(line, "bash") for line in view["commands"].values())])


def _step(step: dict[str, Any]) -> str:
    calls = ", ".join(str(call["tool"]) for call in step["calls"])
    return f"{step['role']}: {step['text'] or '…'}" + (f" → {calls}" if calls else "")


def number_text(value: float) -> str:
    """A number, short."""
    return f"{value:g}" if value < 1e6 else f"{value:,.0f}"


def question_for(call: Call) -> str:
    """What a person is asked about a call."""
    if call.decision == "question":
        return str((call.arguments or {}).get("question", "The agent asks"))
    return f"May the agent run {call.summary or call.tool}? It asks because: {call.reason}"


def reached_text(reached: dict[str, float]) -> str:
    """What a person is told of limits that are reached."""
    return "The limit is reached: " + ", ".join(f"{name} {limit:g}" for name, limit in reached.items())


def enough(reached: dict[str, float], needed: dict[str, float]) -> dict[str, float]:
    """Limits that let the run go on: twice the old one, or what the next step needs, which may be far more."""
    return {name: _more(max(limit, needed[name])) for name, limit in reached.items()}


def _more(limit: float) -> float:
    """Twice the limit: a number to start from in the command that raises it."""
    return max(1, limit * 2) if isinstance(limit, int) or limit.is_integer() else limit * 2


def doubt_of(call: Call, answer: ToolAnswer) -> str:
    """What a person is asked about an unknown outcome, and what is known of it."""
    effect = answer.effect
    known = ""
    if effect is not None:
        known = f" Attempts: {effect.attempts}, prepared at {effect.prepared_at}, key {effect.idempotency_key}."
    return f"Did {call.summary or call.tool} ({call.operation_id}) happen? {answer.reason or 'nobody knows'}.{known}"


def _abandoned(effects: list[EffectRecord], workflow_id: str, thread: str) -> str:
    """The effects of a path that was left, with the command that undoes them, or what else can be done."""
    lines = [f"### Effects of a path that was left by a reset: {len(effects)}"]
    for effect in effects[-LAST_STEPS:]:
        outside = f", outside id {effect.external_id}" if effect.external_id else ""
        undo = command(workflow_id, "compensate", {"operation_id": effect.operation_id, "by": "YOUR-NAME"})
        asks = "" if effect.status == "COMMITTED" else f": look outside for the key {effect.idempotency_key}; this asks"
        remedy = fenced(undo, "bash")
        if effect.operation_id.partition(":")[0] != thread:
            asks, remedy = "", fenced("made by the run that this one was forked from")
        lines.append(f"{fenced(f'{effect.operation_id}: {effect.status}{outside}{asks}')}\n{remedy}")
    return "\n".join(lines)


def left_text(effect: EffectRecord) -> str:
    """What is said of an effect that is on record under the very name of a call, from before a reset."""
    outside = f", outside id {effect.external_id}" if effect.external_id else ""
    return f"before this run was set back it made or began it as {effect.operation_id} ({effect.status}{outside})"


def pending_view(
    request: Request, workflow_id: str, state: RunState | None, longest: int | None = None
) -> dict[str, Any]:
    """A request as the query `pending` gives it. `arguments_at`: the checkpoint that holds all of long arguments;
    `state`: of the run whose call it is about; `longest`: the most characters of its texts."""
    call = request.call
    arguments = None if call is None else call.arguments_preview if call.arguments is None else call.arguments
    shown = cut_value(arguments, longest)
    is_cut = call is not None and (call.arguments is None or shown != arguments)
    head = checkpoint_view(state) if state is not None and is_cut else None
    return {
        "code": request.code,
        "kind": request.kind,
        "operation_id": call.operation_id if call else None,
        "tool": call.tool if call else None,
        "arguments": shown,
        "fingerprint": call.fingerprint if call else None,
        "question": cut(request.question, longest),
        "reason": cut(call.reason, longest) if call and call.reason else None,
        "arguments_at": head["key"] if head else None,
        "asked_at": request.asked_at.isoformat(),
        "deadline": request.deadline.isoformat() if request.deadline else None,
        "owner": workflow_id,
        "commands": commands(request, workflow_id, longest),
    }


def below_view(asked: Asked, longest: int | None) -> dict[str, Any]:
    """What a child asks, as the query `pending` gives it; with cut texts only what is known of requests."""
    if longest is None:
        return asked.model_dump(mode="json")
    return {
        **asked.model_dump(mode="json", include=set(Asked.model_fields)),
        "arguments": cut_value(asked.arguments, longest),
        "question": cut(asked.question, longest),
        "reason": cut(asked.reason, longest) if asked.reason else None,
        "commands": commands_below(asked, longest),
    }


def status_view(state: RunState, status: str) -> dict[str, Any]:
    """The run as the query `status` gives it."""
    opening = state.opening
    return {
        "status": status,
        "waiting_on": state.waiting_on(),
        "turn": state.used.turns,
        "session": state.session,
        "goal": opening.goal if opening else None,
        "bundle": f"{opening.bundle.name}@{opening.bundle.version}" if opening else None,
        "versions": opening.versions if opening else {},
        "upgrade": f"{state.upgrade.opening.bundle.name}@{state.upgrade.opening.bundle.version}"
        if state.upgrade
        else None,
        "budget": {
            "limit": state.limits.model_dump(exclude_none=True),
            "used": state.used_now(),
            **({"reserved": held} if (held := state.family.held()) else {}),
        },
        "usage": state.usage.model_dump(),
        "head": checkpoint_view(state),
        "problem": state.problem.model_dump(exclude={"retry_after"}) if state.problem else None,
    }


def checkpoint_view(state: RunState) -> dict[str, Any] | None:
    """The last checkpoint: key, number, digest."""
    if state.opening is None or state.head is None:
        return None
    key = checkpoint_key(state.opening.thread, state.head.branch, state.head.sequence)
    return {"key": key, "sequence": state.head.sequence, "sha256": state.head.sha256}
