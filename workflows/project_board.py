"""What people see of a project: the task board of Current Details, and the answers of its queries."""

from typing import Any

from workflows.display import asked_below, below_view, fenced, number_text, pending_view
from workflows.fitting import fitting
from workflows.messages import command
from workflows.project_state import ProjectState
from workflows.requests import Request
from workflows.tasks import Task

MARKS = {"open": "☐", "done": "◐", "passing": "☑", "failed": "☒", "dropped": "–"}
LAST_HANDOFFS = 3
SHOWN_BELOW = 20


def board(state: ProjectState, workflow_id: str, status: str) -> str:
    """Current Details: how far it is, each task, what is asked, what is used, and what the last sessions said."""
    return fitting(lambda longest: _board(state, workflow_id, status, longest))


def _board(state: ProjectState, workflow_id: str, status: str, longest: int | None) -> str:
    if state.opening is None:
        return "**opening**: reading the input and pinning the bundles"
    lines = [f"**{status}**, {progress(state)}, session {state.sessions}{_at_work(state)}"]
    lines.append(f"Brief:\n{fenced(state.opening.brief.preview)}")
    if (parent := state.opening.parent) is not None:
        lines.append(f"Forked from boundary {parent.boundary} of\n{fenced(parent.workflow_id)}")
    if state.problem is not None:
        lines.append(f"**Problem**:\n{fenced(state.problem.message)}\nRemedy: {state.problem.remedy}")
    if state.paused is not None:
        lines.append(f"**Paused** (`resume` goes on):\n{fenced(state.paused)}")
    lines += [_asked(asked_view(request, workflow_id, longest)) for request in state.requests.open()]
    lines += [asked_below(asked, longest) for asked in state.family.pending()[:SHOWN_BELOW]]
    if state.course.tasks:
        lines.append(f"### Tasks\n{fenced(chr(10).join(_row(state, task) for task in state.course.tasks))}")
    used, limits = state.used_now(), state.limits.model_dump(exclude_none=True)
    budget = ", ".join(f"{name} {number_text(used[name])} of {number_text(limit)}" for name, limit in limits.items())
    lines.append(f"Used: {budget or 'no limits'}; {number_text(used['tokens'])} tokens, {used['cost_usd']:.4f} USD")
    for each in state.handoffs[-LAST_HANDOFFS:]:
        lines.append(f"{each.number}. {each.role}{' of ' + each.task if each.task else ''}\n{fenced(each.said[:500])}")
    return "\n\n".join(lines)


def progress(state: ProjectState) -> str:
    """For example `3 of 7 tasks pass`."""
    kept = [task for task in state.course.tasks if task.status != "dropped"]
    return f"{len(state.passing())} of {len(kept)} tasks pass" if state.course.tasks else "planning"


def _at_work(state: ProjectState) -> str:
    session = state.session
    if session is None:
        return ""
    return f": {session.role}" + (f" of {session.task}" if session.task else "")


def _row(state: ProjectState, task: Task) -> str:
    here = state.session is not None and state.session.task == task.id
    rejected = f", rejected {task.rejected} times" if task.rejected else ""
    return f"{'▶' if here else MARKS[task.status]} {task.id}: {task.title} ({task.status}{rejected})"


def _asked(view: dict[str, Any]) -> str:
    until = f" (until {view['deadline']})" if view["deadline"] else ""
    lines = [f"### {view['kind']} {view['code']}{until}", fenced(view["question"])]
    return "\n".join([*lines, *(fenced(line, "bash") for line in view["commands"].values())])


def pending_views(state: ProjectState, workflow_id: str, ended: bool) -> list[dict[str, Any]]:
    """What the project itself asks while it goes on, then what its sessions ask, as the query `pending` gives it."""

    def views(longest: int | None) -> list[dict[str, Any]]:
        own = [] if ended else [asked_view(request, workflow_id, longest) for request in state.requests.open()]
        return [*own, *(below_view(asked, longest) for asked in state.family.pending())]

    return fitting(views)


def asked_view(request: Request, workflow_id: str, longest: int | None = None) -> dict[str, Any]:
    """One of them."""
    about = {"task": request.task, "choices": request.choices} if request.task else None
    view = {**pending_view(request, workflow_id, None, longest), "arguments": about}
    for name in request.choices[1:]:  # the first one is in `answer`
        value = {"decision": name, "reason": "WHAT-TO-DO"} if name == "reject" else name
        view["commands"][name] = command(
            workflow_id, "answer", {"code": request.code, "value": value, "by": request.decider}
        )
    return view


def _task_asked(state: ProjectState, workflow_id: str) -> dict[str, Any] | None:
    """The task that a person is asked about, with the commands that decide."""
    views = [asked_view(request, workflow_id) for request in state.requests.open() if request.task == state.asked]
    if state.asked is None or not views:
        return None
    lines = dict(views[0]["commands"])
    return {"task": state.asked, "code": views[0]["code"], "commands": {"accept": lines.pop("answer"), **lines}}


def status_view(state: ProjectState, workflow_id: str, status: str) -> dict[str, Any]:
    """The project as the query `status` gives it."""
    opening, session = state.opening, state.session
    counts: dict[str, int] = {}
    for task in state.course.tasks:
        counts[task.status] = counts.get(task.status, 0) + 1
    return {
        "status": status,
        "waiting_on": state.waiting_on(),
        "brief": opening.brief.preview if opening else None,
        "bundles": bundles_view(state),
        "tasks": {"total": len(state.course.tasks), **counts},
        "sessions": state.sessions,
        "session": None
        if session is None
        else {
            "number": session.number,
            "role": session.role,
            "task": session.task,
            "run": session.child.workflow_id if session.child else None,
        },
        "boundary": state.keeps,
        "commit": state.commit,
        "repository": opening.repository if opening else None,
        "branch": opening.target if opening else None,
        "asked": _task_asked(state, workflow_id),
        "budget": {
            "limit": state.limits.model_dump(exclude_none=True),
            "used": state.used_now(),
            **({"reserved": held} if (held := state.family.held()) else {}),
        },
        "usage": state.usage.model_dump(),
        "problem": state.problem.model_dump(exclude={"retry_after"}) if state.problem else None,
        "log": [entry.model_dump() for entry in state.log[-10:]],
    }


def bundles_view(state: ProjectState) -> dict[str, str]:
    """The pinned bundles, by role."""
    if state.opening is None:
        return {}
    return {role: f"{ref['name']}@{ref['version']}" for role, ref in state.opening.roles.model_dump().items()}
