"""What a session of a project is told: the task, what passes, why it was rejected, what the last session said."""

import json
from typing import Any

from workflows.project_records import SessionRequest
from workflows.tasks import Task

CHECK_FIRST = 2
"""Passing tasks that a coder looks at before it begins; the project checks more of them itself."""

GRADE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "passing": {"type": "boolean", "description": "whether every criterion is met"},
        "criteria": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "criterion": {"type": "string"},
                    "met": {"type": "boolean"},
                    "evidence": {"type": "string", "description": "the command, and what it showed"},
                },
                "required": ["criterion", "met", "evidence"],
                "additionalProperties": False,
            },
        },
        "reasons": {
            "type": "array",
            "items": {"type": "string"},
            "description": "what is to be mended, each naming the file or the command; empty when it passes",
        },
    },
    "required": ["passing", "criteria", "reasons"],
    "additionalProperties": False,
}


def goal_of(request: SessionRequest, brief: str) -> str:
    """The goal of the session."""
    parts = _PARTS[request.role](request, brief)
    if request.said:
        parts.append("From people:\n" + "\n".join(f"- {said.by}: {said.text}" for said in request.said))
    return "\n\n".join(part for part in parts if part)


def _plan(request: SessionRequest, brief: str) -> list[str]:
    return [
        f"Prepare this project: write spec.md and tasks.json, and make the first commit.\n\n{brief}",
        request.refused and f"The plan of the session before cannot be used: {request.refused}\nMend it.",
    ]


def _work(request: SessionRequest, brief: str) -> list[str]:
    task = _task(request)
    return [
        f"Do the task `{task.id}`: {task.title}",
        _criteria(task),
        _passing(request.passing[-CHECK_FIRST:], "These pass, and have to go on passing. Check them first:"),
        _listed("It was tried before, and does not pass. The reasons, the newest last:", task.reasons),
        request.handoff and f"The session before you said at its end:\n{request.handoff}",
    ]


def _grade(request: SessionRequest, brief: str) -> list[str]:
    task = _task(request)
    return [
        f"Grade the task `{task.id}`: {task.title}",
        _criteria(task),
        f"It was worked on up to the commit {task.commit}." if task.commit else "",
        _listed("It did not pass before. The reasons, the newest last:", task.reasons),
        _passing(request.passing, "These passed before, and have to go on passing:"),
        request.refused and f"The grade before could not be used: {request.refused}",
    ]


_PARTS: dict[str, Any] = {"initializer": _plan, "coder": _work, "evaluator": _grade}


def _task(request: SessionRequest) -> Task:
    assert request.task is not None, "coders and evaluators have a task"
    return request.task


def _criteria(task: Task) -> str:
    return f"{_listed('Acceptance criteria:', task.acceptance)}\n\n{_listed('Its checks:', _commands(task))}"


def _passing(tasks: list[Task], said: str) -> str:
    return _listed(said, [f"{task.id}: {', '.join(_commands(task))}" for task in tasks])


def _commands(task: Task) -> list[str]:
    return [json.dumps(argv, ensure_ascii=False) for argv in task.checks]


def _listed(said: str, lines: list[str]) -> str:
    """The lines below what is said of them; nothing where there are none."""
    return "\n".join([said, *(f"- {line}" for line in lines)]) if lines else ""
