"""`perdure project …`: looking at a project, following it, and forking it."""

import asyncio
import json
import shlex
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.boundaries import find_boundary
from activities.errors import Failure
from activities.store import open_store
from scripts.commands.running import DONE, NO, Refused, plain, run
from scripts.living import PATIENCE, ask
from workers.client import Unreachable, connect
from workers.settings import read_settings
from workflows.project_board import MARKS

EVERY = 0.5
STYLES = {"passing": "green", "failed": "red", "done": "yellow", "dropped": "dim"}
View = dict[str, Any]

project = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


@project.callback()
def main() -> None:
    """Look at projects of many sessions."""


@project.command()
def show(
    which: Annotated[str, typer.Argument(metavar="ID", help="the workflow id of a project")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="stay, and show what happens until it ends")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; with --follow a line an event")] = False,
) -> None:
    """Show a project: how far it is, its tasks, what it asks, and what its sessions said.

    With --follow the exit code says whether it completed.
    """
    run(_follow(which, as_json) if follow else _show(which, as_json))


@project.command()
def fork(
    which: Annotated[str, typer.Argument(metavar="ID@N", help="a project and the number of a boundary, as dates@3")],
    id: Annotated[str | None, typer.Option("--id", help="the workflow id of the fork")] = None,  # noqa: A002
    repository: Annotated[str | None, typer.Option(help="where to deliver; the source's, if not given")] = None,
    budget: Annotated[str | None, typer.Option(help='limits as JSON, as {"cost_usd": 5}')] = None,
    by: Annotated[str | None, typer.Option(help="who asks for it")] = None,
    task_queue: Annotated[str | None, typer.Option(help="the queue of the workers; PERDURE_TASK_QUEUE")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="start it without a question")] = False,
) -> None:
    """Begin a new project from a boundary between two tasks of another one: its tasks and files as they were then.

    `perdure project show` numbers the boundaries.
    """
    source, _, number = which.rpartition("@")
    if not source or not number.isdecimal():
        raise typer.BadParameter("a project and a number are wanted, as dates@3", param_hint="ID@N")
    given: View = {"fork": {"workflow_id": source, "boundary": int(number)}}
    try:
        given |= {"budget": json.loads(budget)} if budget else {}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--budget") from None
    given |= {"repository": repository} if repository else {}
    given |= {"by": by} if by else {}
    run(_fork(given, id or f"{source}-from-{number}", task_queue, yes))


async def _fork(given: View, name: str, task_queue: str | None, yes: bool) -> int:
    settings, out = read_settings(), Console(emoji=False, highlight=False, soft_wrap=True)
    queue = task_queue or settings.task_queue
    try:
        at = await find_boundary(open_store(settings.store), given["fork"]["workflow_id"], given["fork"]["boundary"])
    except Failure as error:
        raise Refused(error.message) from None
    out.print(Text(plain(f"{at.thread} at its boundary {at.number}, commit {at.commit}:"), style="bold"))
    for task in at.tasks:
        out.print(Text(plain(f"{MARKS[task.status]} {task.id}: {task.title} ({task.status})")))
    words = ["temporal", "workflow", "start", "--type", "ProjectRun", "--task-queue", queue, "--workflow-id", name]
    print(shlex.join([*words, "--input", json.dumps(given, ensure_ascii=False)]))
    if not yes and not (out.is_terminal and typer.confirm("Start it?")):
        return NO
    client = await connect()
    try:
        await client.start_workflow("ProjectRun", given, id=name, task_queue=queue)
    except WorkflowAlreadyStartedError:
        raise Refused(f"there is a run {name} already; name another one by --id") from None
    print(f"{name} is started; follow it by: perdure project show {name} --follow")
    return DONE


async def _show(which: str, as_json: bool) -> int:
    client = await connect()
    view = await view_of(client, which)
    if view is None:
        raise Unreachable(f"no worker answers for {which}; is one running?")
    if as_json:
        print(json.dumps(view, ensure_ascii=False, indent=1))
        return DONE
    out = Console(emoji=False, highlight=False, soft_wrap=True)
    out.print(board(view))
    for note in view["handoffs"]:
        out.print(note_line(note))
    return DONE


async def _follow(which: str, as_json: bool) -> int:
    client = await connect()
    events = Events()
    out = Console(emoji=False, highlight=False, soft_wrap=True)
    live = Live(console=out, auto_refresh=False) if out.is_terminal and not as_json else None
    if live is not None:
        live.start()
    try:
        while True:
            view = await view_of(client, which)
            for event in [] if view is None else events.of(view):
                if as_json:
                    print(json.dumps(event, ensure_ascii=False), file=sys.stdout, flush=True)
                else:
                    out.print(event_line(event))
            if view is not None and live is not None:
                live.update(board(view), refresh=True)
            if view is not None and view["execution"] != "running":
                return DONE if view["status"] == "completed" else NO
            await asyncio.sleep(EVERY)
    finally:
        if live is not None:
            live.stop()


async def view_of(client: Client, which: str) -> View | None:
    """The project in one object: `status` with `execution`, `task_list`, `handoffs` and `pending`. A closed one is told
    by its result, if no worker answers. None where nobody answers. Raises Refused for no such project."""
    handle = client.get_workflow_handle(which, result_type=dict)
    try:
        described = await handle.describe(rpc_timeout=PATIENCE)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise Refused(f"there is no project {which!r}") from None
    if described.workflow_type != "ProjectRun":
        raise Refused(f"{which} is no project but a {described.workflow_type}; see it by: perdure show {which}")
    execution = described.status.name.lower() if described.status else "unknown"
    names = ("status", "tasks", "handoffs", "pending")
    found = dict(zip(names, await asyncio.gather(*(ask(client, which, name) for name in names)), strict=True))
    head = {"workflow_id": which, "execution": execution}
    if found["status"] is not None and found["tasks"] is not None:
        rest = {"task_list": found["tasks"], "handoffs": found["handoffs"] or [], "pending": found["pending"] or []}
        return {**head, **found["status"], **rest}
    if described.status != WorkflowExecutionStatus.COMPLETED:
        return None
    result: View = await handle.result()
    rest = {"task_list": result["tasks"], "handoffs": [], "pending": [], "waiting_on": [], "session": None}
    return {**head, **result, **rest, "problem": None, "budget": {"limit": {}, "used": result["used"]}}


class Events:
    """Tells of each look only what is new."""

    def __init__(self) -> None:
        self._notes, self._state = 0, ""
        self._tasks: dict[str, str] = {}
        self._asked: set[str] = set()

    def of(self, view: View) -> list[View]:
        """What has happened since the last look."""
        found: list[View] = []
        for note in view["handoffs"]:
            if note["number"] > self._notes:
                self._notes = note["number"]
                found.append({"event": "session", **note})
        for task in view["task_list"]:
            before, self._tasks[task["id"]] = self._tasks.get(task["id"]), task["status"]
            if before is not None and before != task["status"]:
                named = {name: task[name] for name in ("id", "title", "status")}
                found.append({"event": "task", **named, "reasons": task["reasons"][-1:]})
        asked = {item["code"]: {"event": "asks", **item} for item in view["pending"]}
        found += [item for code, item in asked.items() if code not in self._asked]
        self._asked |= asked.keys()
        if (state := headline(view)) != self._state:
            self._state = state
            found.append({"event": "state", "state": state, "status": view["status"], "problem": view["problem"]})
        return found


def headline(view: View) -> str:
    """Where it stands, in one line."""
    session = view["session"]
    at_work = ""
    if session is not None and view["execution"] == "running":
        at_work = f", session {session['number']}: {session['role']}" + (
            f" of {session['task']}" if session["task"] else ""
        )
    waiting = [each for each in view["waiting_on"] if each != "children"]
    return f"{view['status']}{' for ' + ', '.join(waiting) if waiting else ''}{at_work}"


def board(view: View) -> Group:
    """The progress bar, the tasks, what is asked, and what is used."""
    kept = [task for task in view["task_list"] if task["status"] != "dropped"]
    passing = sum(task["status"] == "passing" for task in kept)
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(total=max(1, len(kept)), completed=passing, width=30), f"{passing} of {len(kept)} pass")
    here = (view["session"] or {}).get("task")
    lines = [Text(plain(f"{view['workflow_id']}: {headline(view)}"), style="bold")]
    rows = []
    for task in view["task_list"]:
        mark = "▶" if task["id"] == here else MARKS[task["status"]]
        tried = f", rejected {task['rejected']} times" if task["rejected"] else ""
        text = plain(f"{mark} {task['id']}: {task['title']} ({task['status']}{tried})")
        rows.append(Text(text, style=STYLES.get(task["status"], "")))
    asks = [line for item in view["pending"] for line in _asking(item)]
    if view["problem"] is not None:
        asks.append(Text(plain(f"{view['problem']['message']}; {view['problem']['remedy']}"), style="red"))
    used = view["budget"]["used"]
    cost = f"{view['sessions']} sessions, {used['turns']} turns, {used['tokens']} tokens, {used['cost_usd']:.4f} USD"
    where = f"{view['branch']} in {view['repository']}, at {view['commit']}" if view.get("repository") else ""
    return Group(*lines, bar, *rows, *asks, Text(cost, style="dim"), *([Text(plain(where), style="dim")] * bool(where)))


def _asking(item: View) -> list[Text]:
    """What is asked, with the commands that decide it."""
    head = f"{item['code']} {item['kind']}: {item['question']}"
    return [Text(plain(head), style="yellow"), *(Text(plain(f"  {line}")) for line in item["commands"].values())]


def note_line(note: View) -> Text:
    """One session that ended."""
    word = {True: "passes", False: "does not pass", None: note["status"]}[note["passing"]]
    about = " ".join(part for part in (note["task"] or "", word) if part)
    said = " ".join(str(note["reasons"][0] if note["reasons"] else note["said"]).split())[:100]
    text = f"{note['number']:>3} @{note['boundary']:<3} {note['role']:11} {about:28} {said}"
    return Text(plain(text.rstrip()), style="cyan")


def event_line(event: View) -> Any:
    """One event, for people."""
    match event["event"]:
        case "session":
            return note_line(event)
        case "task":
            why = (
                f": {' '.join(event['reasons'][0].split())[:200]}"
                if event["reasons"] and event["status"] == "open"
                else ""
            )
            return Text(plain(f"    {event['id']} is {event['status']}{why}"), style=STYLES.get(event["status"], ""))
        case "asks":
            return Group(*_asking(event))
        case _:
            more = f": {event['problem']['message']}; {event['problem']['remedy']}" if event["problem"] else ""
            return Text(plain(f"    {event['state']}{more}"), style="dim")
