"""`perdure approve`, `deny`, `answer`, `resolve`: a decision, by its code alone; the run it belongs to is found."""

import asyncio
import getpass
import json
from typing import Annotated, Any

import typer
from rich.markup import escape
from temporalio.client import Client

from activities.questions import no_answer
from scripts.commands.pending import Item, console, find_by_code, show_diff
from scripts.commands.running import NO, Refused, plain, run
from workers.client import connect
from workers.sending import NotAnswered, NotTaken, send_update
from workflows.messages import loads

TRIES = 12
"""Seconds, about: what is checked has its outcome within ten."""

Code = Annotated[str, typer.Argument(help="The code of the request, as `perdure pending` shows it")]


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        raise typer.BadParameter("say who you are", param_hint="--by") from None


By = Annotated[
    str,
    typer.Option("--by", help="Your name, for the log", envvar="USER", default_factory=_me, show_default="you"),
]
Run = Annotated[str | None, typer.Option("--run", help="The workflow id, if several runs have a request of that code")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON")]


def approve(
    code: Code,
    by: By,
    arguments: Annotated[str | None, typer.Option(help="JSON: run the call with these arguments instead")] = None,
    note: Annotated[str | None, typer.Option(help="A note for the log")] = None,
    run_id: Run = None,
    as_json: Json = False,
) -> None:
    """Let the agent run the call, with other arguments where they are given."""
    body: dict[str, Any] = {"by": by}
    if note is not None:
        body["note"] = note
    if arguments is not None:
        body["arguments"] = _json("--arguments", arguments)
        if not isinstance(body["arguments"], dict):
            raise typer.BadParameter("a JSON object is wanted", param_hint="--arguments")
    run(_decide("approve", code, body, run_id, as_json))


def deny(
    code: Code,
    by: By,
    reason: Annotated[str | None, typer.Option(help="Why; the agent is told")] = None,
    run_id: Run = None,
    as_json: Json = False,
) -> None:
    """Do not let the agent run the call."""
    run(_decide("deny", code, {"by": by, **({} if reason is None else {"reason": reason})}, run_id, as_json))


def answer(code: Code, value: str, by: By, run_id: Run = None, as_json: Json = False) -> None:
    """Answer a question of the agent. VALUE is a text; JSON where the question has a schema that wants more."""
    run(_decide("answer", code, {"by": by, "value": value}, run_id, as_json))


def resolve(
    code: Code,
    outcome: Annotated[str, typer.Argument(help="happened, not_happened or give_up")],
    by: By,
    result: Annotated[str | None, typer.Option(help="JSON or text: what the call gave, if it happened")] = None,
    run_id: Run = None,
    as_json: Json = False,
) -> None:
    """Say what became of a call whose outcome nobody knows."""
    if outcome not in ("happened", "not_happened", "give_up"):
        raise typer.BadParameter(f"{outcome!r} is not one of: happened, not_happened, give_up", param_hint="OUTCOME")
    body: dict[str, Any] = {"by": by, "outcome": outcome}
    if result is not None:
        body["result"] = _json_or_text(result)
    run(_decide("resolve", code, body, run_id, as_json))


async def _decide(name: str, code: str, body: dict[str, Any], run_id: str | None, as_json: bool) -> int:
    if run_id is not None and not run_id.strip():
        raise typer.BadParameter("a workflow id is wanted", param_hint="--run")
    client = await connect()
    item: Item = {"code": code, "owner": run_id}
    try:
        item = await find_by_code(client, code, run_id)
        values = await _readings(item, body["value"]) if name == "answer" else []
        answered = await _send_first(client, item, name, [{**body, "value": value} for value in values] or [body])
    except (NotTaken, Refused) as refused:
        if as_json:
            print(json.dumps({"ok": False, "code": item["code"], "owner": item["owner"], "error": str(refused)}))
            return NO
        raise Refused(str(refused)) from None
    if as_json:
        print(json.dumps({**answered, "code": item["code"], "owner": item["owner"]}, ensure_ascii=False))
        return 0
    status, code, owner = (escape(plain(each)) for each in (answered["status"], item["code"], item["owner"]))
    console().print(f"[green]{status}[/]: {code} of {owner}")
    if body.get("arguments") is not None:
        show_diff(item["arguments"], body["arguments"])
    return 0


async def _send(client: Client, item: Item, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer; while something that somebody else sent for this code is being checked, it is sent again."""
    for _ in range(TRIES):
        try:
            return await send_update(client, str(item["owner"]), name, {"code": item["code"], **body})
        except NotTaken as refused:
            if "is being checked" not in str(refused):
                raise
        await asyncio.sleep(1)
    return await send_update(client, str(item["owner"]), name, {"code": item["code"], **body})


async def _send_first(client: Client, item: Item, name: str, bodies: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to the first of the bodies that is taken. Raises NotTaken with what was said of the first."""
    refusals: list[NotTaken] = []
    for body in bodies:
        try:
            return await _send(client, item, name, body)
        except NotAnswered:
            raise
        except NotTaken as refused:
            refusals.append(refused)
    raise refusals[0]


async def _readings(item: Item, text: str) -> list[Any]:
    """What an answer may mean, the text itself or the JSON in it: the one that fits the question; both, where the
    question is not known in full."""
    try:
        value = loads(text)
    except ValueError:
        return [text]
    asked = item["arguments"] if isinstance(item["arguments"], dict) else None
    plain_text = asked is not None and not asked.get("schema")
    quoted = isinstance(value, str) and not plain_text
    both = [value, text] if quoted or (asked is None and isinstance(value, dict | list)) else [text, value]
    if asked is None:
        return both
    return [each for each in both if await no_answer(asked, each) is None][:1] or [value]


def _json(name: str, text: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def _json_or_text(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        return text
