"""Asking another bundle's model at the recorded contexts of a run, without running anything it wants."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from activities import compaction
from activities.errors import Failure
from activities.manifest import Manifest
from activities.reading import kind_of, take_final
from activities.reply import Ask, NoSink, Reply, price_usage
from activities.routing import Router
from activities.trail import Trail
from scripts.rehearsal import Asked, Finding, Rehearsal, Size
from workflows.records import Usage

AT_ONCE = 4
SECONDS = 300.0


def price_of(turns: Sequence[Asked], sizes: Sequence[Size], manifest: Manifest) -> Usage:
    """What asking would cost, about: each turn's input at the bundle's first price, and as much output as before."""
    outputs = {turn.step.number: turn.step.record.usage.output_tokens for turn in turns}
    price, total = manifest.file.model[0].price, Usage()
    for size in sizes:
        if size.turn in outputs:
            total = total.plus(price_usage(size.now, 0, outputs[size.turn], price, estimated=True))
    return total


async def ask_again(turns: Sequence[Asked], manifest: Manifest, router: Router, found: Rehearsal) -> Usage:
    """Asks at each context and adds where the choice differs; gives what it cost."""
    gate, total = asyncio.Semaphore(AT_ONCE), Usage()

    async def one(turn: Asked) -> tuple[Finding | None, Usage]:
        async with gate:
            return await _ask(turn, manifest, router)

    for finding, usage in await asyncio.gather(*(one(turn) for turn in turns)):
        total = total.plus(usage)
        found.findings += [finding] if finding else []
    return total


async def _ask(turn: Asked, manifest: Manifest, router: Router) -> tuple[Finding | None, Usage]:
    shown, shorter = compaction.compacted(turn.context)
    most = min(manifest.file.limits.tool_output, shorter or manifest.file.limits.tool_output)
    schema = turn.context[0].get("output_schema")
    trail, number = Trail(), turn.step.number
    try:
        asked = Ask(manifest.prompt, shown, manifest.tools, most, schema)
        reply = await router.reply(manifest.file.model, asked, trail, time.monotonic() + SECONDS, NoSink())
    except Failure as error:
        return Finding(number, "chooses", f"the model gave no answer: {error.message}"), trail.usage
    take_final(reply, schema)
    usage = trail.usage.plus(reply.usage)
    then, now = _recorded(turn), _chosen(reply)
    if then == now:
        return None, usage
    return Finding(number, "chooses", f"{_words(now)}, not {_words(then)}"), usage


def _recorded(turn: Asked) -> list[tuple[str, Any]] | str:
    message = turn.step.message or {}
    if turn.step.turn is not None and turn.step.turn.kind != "calls":
        return turn.step.turn.kind
    return [(call["tool"], _value(call["arguments"])) for call in message.get("calls", ())]


def _chosen(reply: Reply) -> list[tuple[str, Any]] | str:
    kind = kind_of(reply)
    return [(call.name.replace(".", "__"), _value(call.arguments)) for call in reply.calls] if kind == "calls" else kind


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _words(choice: list[tuple[str, Any]] | str) -> str:
    if isinstance(choice, str):
        return {"answer": "it answers", "empty": "it says nothing"}.get(choice, choice)
    return ", ".join(f"{tool} {json.dumps(value, ensure_ascii=False)[:120]}" for tool, value in choice)
