"""Watching a run: its steps as they happen, and what it asks of people."""

import asyncio
import getpass
import re
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from scripts.demo.screen import Screen, clean
from scripts.demo.temporal_cli import TemporalCli

EVERY = 0.3  # seconds between two looks
PATIENCE = timedelta(seconds=3)  # for one query: with no worker there is no answer
SUBJECTS = ("url", "path", "to", "text", "question")  # arguments that say what a call is about
SUBJECT = re.compile(rf'"({"|".join(SUBJECTS)})": ?"((?:[^"\\]|\\.)*)')
OUTCOMES = {"h": "happened", "n": "not_happened", "g": "give_up"}


class Watch:
    """Shows one run, and brings its questions to the person in front, or answers yes for them."""

    def __init__(self, handle: WorkflowHandle[Any, Any], cli: TemporalCli, screen: Screen, *, yes: bool) -> None:
        self._handle = handle
        self._cli = cli
        self._screen = screen
        self._yes = yes
        self._shown = 0  # the last turn on the screen
        self._deciding: dict[str, asyncio.Task[None]] = {}
        self._sending: set[str] = set()

    async def forever(self) -> None:
        """Look again and again, until cancelled. Raises DemoError when a decision cannot be sent."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(EVERY)
        finally:
            for task in self._deciding.values():
                task.cancel()
            self._screen.rest()

    async def last_look(self) -> None:
        """Show what happened since the look before, when the run has ended."""
        await self._show_steps()

    async def _look(self) -> None:
        status = await self._query("status")
        if status is None:
            return
        await self._show_steps()
        pending = await self._query("pending")
        if pending is not None:
            self._mind_decisions(pending)
        if not any(not task.done() for task in self._deciding.values()):
            self._screen.busy(state_line(status))

    async def _query(self, name: str, *arguments: Any) -> Any:
        """A query's answer; None while nobody can give one."""
        try:
            return await self._handle.query(name, *arguments, rpc_timeout=PATIENCE)
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
            return None

    async def _show_steps(self) -> None:
        for step in await self._query("transcript", {"last": 50}) or []:
            calls = step.get("calls") or []
            if not calls:
                continue
            turn = int(str(calls[0]["id"]).split(".")[0])
            if turn <= self._shown:
                continue
            self._shown = turn
            what = ", ".join(f"{call['tool']} {subject(call.get('arguments'))}".rstrip() for call in calls)
            self._screen.say(f"  step {turn:>2}  {clean(what)}")

    def _mind_decisions(self, pending: list[dict[str, Any]]) -> None:
        codes = {request["code"] for request in pending}
        for code, task in list(self._deciding.items()):
            if code in codes:
                if task.done():
                    task.result()  # a decision that could not be sent ends the demo, with the reason
            elif code not in self._sending:  # decided, here or by another message
                task.cancel()
                del self._deciding[code]
        for request in pending:
            if request["code"] not in self._deciding:
                self._deciding[request["code"]] = asyncio.create_task(self._decide(request))

    async def _decide(self, request: dict[str, Any]) -> None:
        self._screen.rest()
        self._screen.title(f"The agent waits for a person: {clean(request.get('kind'))} {request['code']}")
        for line in request_lines(request):
            self._screen.say(f"  {line}")
        choice = await self._choose(request)
        if choice is None:
            self._screen.say("  Decide with one of these:")
            for line in (request.get("commands") or {}).values():
                self._screen.say(f"    {line}")
            return
        name, value = choice
        command = self._cli.update(name, request.get("owner") or self._cli.workflow_id, value)
        self._screen.say(f"  $ {self._cli.line(*command)}", style="dim")
        self._sending.add(request["code"])
        await self._cli.run(*command)
        self._sending.discard(request["code"])

    async def _choose(self, request: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """The message to send and its value; None to leave it to the person's own command line."""
        said = {"code": request["code"], "by": person()}
        kind = request.get("kind")
        if self._yes:
            if kind == "approval":
                return "approve", said
            if kind == "question":
                return "answer", {**said, "value": "Use your own judgement."}
            return None  # what happened outside, or what may be spent, is not for a flag to say
        if not self._screen.can_ask:
            return None
        if kind == "approval":
            return await self._ask_approval(said)
        if kind == "question":
            return "answer", {**said, "value": await self._screen.ask("  Your answer:")}
        if kind == "review":
            letter = await self._screen.ask("  Did it happen? [h]appened, [n]ot happened, [g]ive up:")
            return ("resolve", {**said, "outcome": OUTCOMES[letter[0]]}) if letter[:1] in OUTCOMES else None
        return None

    async def _ask_approval(self, said: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        answer = (await self._screen.ask("  Approve? [y]es, [n]o, anything else: decide later")).lower()
        if answer in ("y", "yes"):
            return "approve", said
        if answer in ("n", "no"):
            return "deny", {**said, "reason": "denied at the terminal"}
        return None


def person() -> str:
    """Who decides, as far as this machine knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        return "operator"


def state_line(status: dict[str, Any]) -> str:
    """The status in one line, for the spinner."""
    waiting = ", ".join(status.get("waiting_on") or [])
    state = f"{status.get('status')}, for {waiting}" if waiting else str(status.get("status"))
    return clean(f"step {status.get('turn')}: {state}")


def subject(arguments: Any) -> str:
    """What a call is about, without what every address has in common. Long arguments come as cut JSON."""
    if isinstance(arguments, str):
        arguments = dict(SUBJECT.findall(arguments)) or {"text": arguments}
    named = [arguments[name] for name in SUBJECTS if name in arguments] if arguments else [""]
    about = next(iter(named or arguments.values()))
    return clean(str(about).removeprefix("https://").removeprefix("http://"), 60)


def request_lines(request: dict[str, Any]) -> list[str]:
    """A pending decision, for a person to read."""
    lines = [clean(request["question"], 400)] if request.get("question") else []
    if request.get("tool"):
        lines.append(f"tool: {clean(request['tool'])}")
    arguments = request.get("arguments")
    if isinstance(arguments, dict):
        lines += [f"{clean(name)}: {clean(value, 300)}" for name, value in arguments.items()]
    elif arguments:
        lines.append(clean(arguments, 300))
    if request.get("deadline"):
        lines.append(f"without a decision until {clean(request['deadline'])} it is a no")
    return lines
