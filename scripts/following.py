"""Following a run: each turn as it is recorded, what is said and done meanwhile, what people are asked, the end."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.checkpoints import Checkpoints
from activities.ledger import Ledger
from activities.origin import find_origin
from activities.store import Store
from activities.streaming import read_stream
from scripts.commands.running import DONE, NO, Refused, plain
from scripts.drawing import call_line, state_of
from scripts.living import PATIENCE, live_of, place_of
from scripts.past import path_to
from scripts.tree import TurnNode, effects_by_name, turn_node
from workflows.keys import thread_name

EVERY = 0.5
BEGINS = 5
"""How many of the turns before are shown first."""

Event = dict[str, Any]


async def follow(client: Client, store: Store, workflow_id: str, as_json: bool) -> int:
    """Shows what happens until the run ends. Exit code 1 when it did not complete. Raises Refused for no such run."""
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=PATIENCE)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise Refused(f"there is no run {workflow_id!r}") from None
    thread = thread_name(workflow_id, described.raw_description.workflow_execution_info.first_run_id)
    screen = Screen(as_json)
    watch = Watch(client, store, workflow_id, thread, screen.show)
    try:
        while (live := await watch.look()) is None or live["execution"] == "running":
            screen.busy(await watch.progress(live))
            await asyncio.sleep(EVERY)
    finally:
        screen.rest()
    return DONE if live["status"] == "completed" else NO


class Watch:
    """Looks again and again, and tells only what is new."""

    def __init__(self, client: Client, store: Store, workflow_id: str, thread: str, tell: Callable[[Event], None]):
        self._client, self._store, self._workflow_id, self._thread = client, store, workflow_id, thread
        self._tell = tell
        self._at: tuple[str, int] | None = None
        self._asked: set[str] = set()
        self._state = ""

    async def look(self) -> dict[str, Any] | None:
        """Tells what has happened since the last look, and gives where the run stands."""
        live = await live_of(self._client, self._workflow_id, self._thread, whole=False)
        if (place := place_of(live)) is not None and place != self._at:
            await self._turns(place)
        if live is None:
            return None
        for item in live.get("pending", []):
            if item["code"] not in self._asked:
                self._asked.add(item["code"])
                self._tell({"event": "asks", **item})
        if (state := state_of(live)) != self._state:
            self._state = state
            about = {name: live.get(name) for name in ("problem", "output", "reason") if live.get(name)}
            self._tell({"event": "state", "state": state, **about})
        return live

    async def _turns(self, place: tuple[str, int]) -> None:
        """The turns up to `place` that were not told yet, with the answers of the one before them."""
        record = await Checkpoints(self._store).find(self._thread, *place)
        if record is None:
            return
        known = max(0, place[1] - BEGINS) - 1 if self._at is None else self._at[1]
        steps = await path_to(self._store, self._thread, record, known - 1)
        if self._at is not None and all((step.record.branch, step.number) != self._at for step in steps):
            steps = await path_to(self._store, self._thread, record)
            known = next(step.number for step in steps if step.record.branch == place[0]) - 1
            self._tell({"event": "left", "at": known})
        own, origin = await Ledger(self._store).everything(self._thread), await find_origin(self._store, self._thread)
        effects = await effects_by_name(self._store, self._thread, own, steps, origin)
        for step in steps:
            node = turn_node(step, effects)
            if step.number == known and node.calls:
                self._tell({"event": "answers", "turn": step.number, "calls": node.calls})
            elif step.number > max(known, 0):
                self._tell({"event": "turn", "turn": step.number, "node": node})
                if step.answers:
                    self._tell({"event": "answers", "turn": step.number, "calls": node.calls})
        self._at = place

    async def progress(self, live: dict[str, Any] | None) -> str:
        """What is going on just now, in one line."""
        if live is None:
            return "looking for the run"
        place = self._at or ("", 0)
        pieces = await read_stream(self._store, self._thread, None, place[1] + 1)
        said = "".join(piece.text for piece in pieces if piece.kind == "text")
        text = f": {plain(said[-60:]).strip()}" if said else ""
        return f"turn {place[1] + 1}, {self._state}{text}"


class Screen:
    """Where events go: lines for people with a line of progress below them, or a line of JSON for each."""

    def __init__(self, as_json: bool) -> None:
        self._json, self._out = as_json, Console(emoji=False, highlight=False, soft_wrap=True)
        self._status = self._out.status("") if self._out.is_terminal and not as_json else None

    def busy(self, text: str) -> None:
        """The line of progress; only in a terminal."""
        if self._status is not None:
            self._status.update(Text(text.replace("\n", " ")))
            self._status.start()

    def rest(self) -> None:
        """Ends the line of progress."""
        if self._status is not None:
            self._status.stop()

    def show(self, event: Event) -> None:
        """One event."""
        if self._json:
            print(json.dumps(event, ensure_ascii=False, default=vars), file=sys.stdout, flush=True)
            return
        for line in _lines(event):
            self._out.print(line)


def _lines(event: Event) -> list[Any]:
    match event["event"]:
        case "turn":
            node: TurnNode = event["node"]
            said = [Text(plain(f"  {who}: {text[:200]}"), style="cyan") for who, text in node.said]
            calls = [Text.assemble("  ", call_line(call)) for call in node.calls if call.answer is None]
            return [*said, Text(plain(f"turn {node.turn} {node.text[:200]}".rstrip()), style="bold"), *calls]
        case "answers":
            return [Text.assemble("  ", call_line(call)) for call in event["calls"]]
        case "asks":
            head = Text(plain(f"{event['code']} {event['kind']}: {event['question']}"), style="yellow")
            return [head, *(Text(plain(f"  {line}")) for line in event["commands"].values())]
        case "left":
            return [Text(f"set back to checkpoint {event['at']}: another path begins", style="magenta")]
        case _:
            more = [str(event["output"])] if event.get("output") else []
            more += [f"{event['problem']['message']}; {event['problem']['remedy']}"] if event.get("problem") else []
            return [Text(event["state"], style="green"), *(Text(plain(text)) for text in more)]
