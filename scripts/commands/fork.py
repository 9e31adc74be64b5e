"""`perdure fork RUN@k`: what a fork would inherit and what the source did since, and then the fork."""

import json
import shlex
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from temporalio.client import Client
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.canonical import preview
from activities.errors import Failure, StoreUnavailable
from scripts.commands.running import Refused, run
from scripts.forks import Report, context, fork_input, report
from workers.client import connect
from workers.settings import read_settings

Which = Annotated[
    str, typer.Argument(metavar="RUN@K", help="a workflow id and the number of a checkpoint, as run-83@15")
]
Edits = Annotated[list[str], typer.Option("--edit", help='an edit as JSON, as {"drop": 7}; may be given again')]
Append = Annotated[str | None, typer.Option("--append", help="a user message at the end of the context")]
Goal = Annotated[str | None, typer.Option("--goal", help="another goal")]
Bundle = Annotated[str | None, typer.Option("--bundle", help="another bundle, as name@version")]
Budget = Annotated[str | None, typer.Option("--budget", help='limits as JSON, as {"turns": 20}')]
Inherit = Annotated[bool, typer.Option("--inherit-budget", help="what the prefix has used counts")]
Branch = Annotated[str | None, typer.Option("--branch", help="the path on which the checkpoint stands, after a reset")]
Id = Annotated[str | None, typer.Option("--id", help="the workflow id of the fork")]
Queue = Annotated[str | None, typer.Option("--task-queue", help="the queue of the workers; PERDURE_TASK_QUEUE")]
Repeat = Annotated[str | None, typer.Option("--repeat", help="ask, run or reuse: effects that were made before")]
Interactive = Annotated[bool, typer.Option("--interactive", help="after an answer, wait for the next message")]
By = Annotated[str | None, typer.Option("--by", help="who asks for it")]
Listed = Annotated[bool, typer.Option("--context", help="print the numbered messages that edits refer to, and end")]
Yes = Annotated[bool, typer.Option("--yes", help="start it without a question")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON, one object")]


def fork(
    which: Which,
    edit: Edits = [],  # noqa: B006, typer's way
    append: Append = None,
    goal: Goal = None,
    bundle: Bundle = None,
    budget: Budget = None,
    inherit_budget: Inherit = False,
    branch: Branch = None,
    id: Id = None,  # noqa: A002, the option's name
    task_queue: Queue = None,
    repeat: Repeat = None,
    interactive: Interactive = False,
    by: By = None,
    show_context: Listed = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Begin a new run from a checkpoint of another one. Nothing of what was before is run again.

    It says first what the fork inherits and what the source did after the checkpoint, and starts nothing unless it is
    told to. The plain `temporal workflow start` that does the same is printed too.
    """
    source, number = _split(which)
    edits = [_json("--edit", text) for text in edit]
    if append is not None:
        edits.append({"append": "user", "content": append})
    wanted = {"workflow_id": source, "checkpoint": number}
    wanted |= {"branch": branch} if branch else {}
    wanted |= {"edits": edits} if edits else {}
    wanted |= {"budget": "inherited"} if inherit_budget else {}
    value: dict[str, Any] = {"fork": wanted}
    given = {"goal": goal, "bundle": bundle, "repeat": repeat, "interactive": interactive or None, "by": by}
    value |= {name: each for name, each in given.items() if each is not None}
    value |= {"budget": _json("--budget", budget)} if budget is not None else {}
    run(_context(value, as_json) if show_context else _fork(value, id, task_queue, yes, as_json))


def _split(which: str) -> tuple[str, int]:
    source, _, number = which.rpartition("@")
    if not source or not number.isdecimal():
        raise typer.BadParameter("give a run and a checkpoint, as run-83@15", param_hint="RUN@K")
    return source, int(number)


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint=option) from None


async def _context(value: dict[str, Any], as_json: bool) -> int:
    settings, wanted = read_settings(), fork_input(value)
    try:
        messages = await context(await connect(settings), settings, wanted)
    except StoreUnavailable:
        raise
    except Failure as error:
        raise Refused(error.message) from None
    if as_json:
        print(json.dumps(messages, ensure_ascii=False, indent=1))
        return 0
    for number, message in enumerate(messages):
        calls = ", ".join(f"{call['id']} {call['tool']} {call['arguments']}" for call in message.get("calls") or ())
        name = f"{message['role']} {message.get('call', '')}".strip()
        print(
            f"{number:>5}  {name}: {preview(str(message['text']), 300)}"
            + (f"  -> {preview(calls, 300)}" if calls else "")
        )
    return 0


async def _fork(value: dict[str, Any], name: str | None, queue: str | None, yes: bool, as_json: bool) -> int:
    settings, wanted = read_settings(), fork_input(value)
    if name == wanted.workflow_id:
        raise Refused(f"{name} is the name of the run that is forked: give the fork another name with --id")
    client = await connect(settings)
    try:
        found = await report(client, settings, wanted, value.get("bundle"))
    except StoreUnavailable:
        raise
    except Failure as error:
        raise Refused(error.message) from None
    name = name or await _free_name(client, f"{value['fork']['workflow_id']}-fork-{value['fork']['checkpoint']}")
    queue = queue or settings.task_queue
    line = _start_line(name, queue, value)
    if not as_json:
        _show(found, value)
        print(f"\n{line}\n")
        if not yes and sys.stdin.isatty():
            yes = typer.confirm("Start it?")
    started = await _start(client, name, queue, value) if yes else None
    if as_json:
        print(json.dumps({**found.view(), "command": line, "started": started}, ensure_ascii=False, indent=1))
    else:
        print(f"started {started}" if started else "Nothing was started. To start it, add --yes.")
    return 0


async def _free_name(client: Client, wanted: str) -> str:
    """A workflow id that nobody has yet."""
    name, count = wanted, 1
    while True:
        try:
            await client.get_workflow_handle(name).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return name
            raise
        count += 1
        name = f"{wanted}-{count}"


async def _start(client: Client, name: str, queue: str, value: dict[str, Any]) -> str:
    try:
        handle = await client.start_workflow("AgentRun", value, id=name, task_queue=queue)
    except WorkflowAlreadyStartedError:
        raise Refused(f"there is a run {name} already: give the fork another name with --id") from None
    return handle.id


def _start_line(name: str, queue: str, value: dict[str, Any]) -> str:
    words = ["temporal", "workflow", "start", "--type", "AgentRun", "--task-queue", queue, "--workflow-id", name]
    return shlex.join([*words, "--input", json.dumps(value, ensure_ascii=False)])


def _show(found: Report, value: dict[str, Any]) -> None:
    """The report, before anything runs."""
    console = Console(emoji=False, soft_wrap=True)

    def line(text: str) -> None:
        console.print(escape(text), highlight=False)

    view = found.view()
    line(f"Fork of {value['fork']['workflow_id']} at checkpoint {view['checkpoint']} ({view['thread']}, {view['at']})")
    line(f"The last message of the agent: {view['last']}")
    for name, title in (
        ("inherited", "Effects that it inherits"),
        ("undone", "Effects that its context holds and that were undone since"),
        ("after", "Effects of the source that it does not know"),
    ):
        line(f"{title}: {len(view[name]) or 'none'}")
        for effect in view[name]:
            request = preview(json.dumps(effect["request"], ensure_ascii=False), 120)
            line(f"  {effect['operation_id']}: {effect['status']} {request}")
            if name == "after":
                line(f"    undo: {effect['undo'] or effect['why_not']}")
    then, now = view["versions"]["then"], view["versions"]["now"]
    changed = [f"{key}: {then.get(key)} -> {now.get(key)}" for key in now if then.get(key, now[key]) != now[key]]
    line(f"Versions: {', '.join(changed) or 'the same as then'}")
