"""Runs against a fault server: many at once on one worker, each with a bundle and a model of its own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from tests.faults.plays import say
from tests.faults.server import Asked, FaultServer, Play, Rule
from tests.integration.kit import Stack

TOOLS = ["list_files", "read_file", "write_file"]
ALLOW = [{"tool": "*", "decision": "allow"}]


@dataclass
class Case:
    """One run: what its model plays (a list, or a plan), and what differs in its bundle and its start."""

    plays: Sequence[Play] | Callable[[Asked], Play]
    tools: list[str] = field(default_factory=lambda: list(TOOLS))
    model: dict[str, Any] = field(default_factory=dict)
    bundle: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    look: bool = False
    """Whether the transcript is looked at when the run has ended."""
    name: str = ""
    transcript: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    failure: Any = None
    server: FaultServer | None = None

    @property
    def asked(self) -> list[Asked]:
        """The requests that came for this case."""
        assert self.server is not None
        return [asked for asked in self.server.asked if asked.model == self.name]

    @property
    def ended(self) -> str:
        """The result's status, or the failure's type."""
        return str(self.result["status"] if self.result is not None else self.failure.type)

    def play(self, asked: Asked) -> Play:
        """What is played for a request."""
        if callable(self.plays):
            return self.plays(asked)
        return self.plays[min(asked.number, len(self.plays) - 1)]


def serve(stack: Stack, *rules: Rule, **cases: Case) -> FaultServer:
    """A fault server that plays the cases, and a bundle for each."""
    for name, case in cases.items():
        case.name = name
        model = {"model": name, **case.model}
        stack.bundle(name, case.tools, **{"model": [model], "policy": ALLOW, **case.bundle})

    def plan(asked: Asked) -> Play:
        return cases[asked.model].play(asked) if asked.model in cases else say("another model")

    server = FaultServer(plan, *rules)
    for case in cases.values():
        case.server = server
    stack.environment["OPENAI_BASE_URL"] = server.url
    return server


async def begin(stack: Stack, client: Client, case: Case) -> WorkflowHandle[Any, Any]:
    """Starts the run of a case."""
    run = f"{stack.name}-{case.name}"
    stack.runs.append(run)
    value = {"goal": "Do what there is to do.", "bundle": case.name, **case.start}
    return await client.start_workflow("AgentRun", value, id=run, task_queue=stack.name)


async def finish(handle: WorkflowHandle[Any, Any], case: Case, seconds: float = 120) -> None:
    """Waits for the end of the run of a case."""
    try:
        case.result = await asyncio.wait_for(handle.result(), seconds)
    except WorkflowFailureError as error:
        case.failure = error.cause
    if case.look:
        case.transcript = await handle.query("transcript")


async def run_all(stack: Stack, client: Client, *rules: Rule, **cases: Case) -> FaultServer:
    """Runs all cases on one worker, to their ends. The server is closed then; what it was asked stays."""
    with serve(stack, *rules, **cases) as server:
        async with stack.worker():
            handles = [await begin(stack, client, case) for case in cases.values()]
            await asyncio.gather(*(finish(h, case) for h, case in zip(handles, cases.values(), strict=True)))
    assert server.invalid == []
    return server


def answers(case: Case, turn: int) -> list[str]:
    """The tool messages that the request for a turn ends with."""
    body = next(asked.body for asked in case.asked if asked.turn == turn)
    found: list[str] = []
    for message in reversed(body["messages"]):
        if message["role"] != "tool":
            break
        found.insert(0, message["content"])
    return found
