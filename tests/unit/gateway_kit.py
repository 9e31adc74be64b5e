"""The gateway alone, against a fault server: no Temporal, no store."""

import time
from typing import Any

from activities.gateway import Gateway
from activities.manifest import Model, ToolSpec
from activities.reply import Ask, Reply
from activities.routing import Router
from activities.trail import Trail
from tests.faults.server import FaultServer

KEY = "sk-canary-0123456789/ab+cd"
TOOL = ToolSpec(
    name="crm.find", description="Finds.", parameters={"type": "object", "properties": {}}, effect="read", digest="d"
)
USER: dict[str, Any] = {"role": "user", "text": "Do it."}


class Sink:
    """Keeps the pieces of the last request."""

    def __init__(self) -> None:
        self.started = 0
        self.pieces: list[tuple[str, str]] = []

    async def start(self) -> None:
        self.started, self.pieces = self.started + 1, []

    async def __call__(self, kind: str, text: str) -> None:
        self.pieces.append((kind, text))

    def text(self, kind: str) -> str:
        """All that came of one kind."""
        return "".join(text for each, text in self.pieces if each == kind)


class Desk:
    """Asks one fault server, with a trail that lives on from question to question, as within a run."""

    def __init__(self, server: FaultServer, *routes: dict[str, Any]) -> None:
        values = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        self.gateway = Gateway(values.get)
        self.router = Router(self.gateway)
        self.routes = [Model.model_validate({"model": "m", **route}) for route in routes or ({},)]
        self.trail, self.sink = Trail(), Sink()

    async def ask(self, *more: dict[str, Any], schema: Any = None, tools: bool = True) -> Reply:
        """One answer, with a minute for it."""
        question = Ask("Be brief.", [USER, *more], [TOOL] if tools else [], 50_000, schema)
        try:
            return await self.router.reply(self.routes, question, self.trail, time.monotonic() + 60, self.sink)
        finally:
            await self.gateway.close()
            self.gateway._clients.clear()


def turn(reply: Reply, number: int = 1) -> list[dict[str, Any]]:
    """The reply as the context keeps it, with an answer to each of its calls."""
    ids = [f"{number}.{index}" for index in range(len(reply.calls))]
    calls = [
        {"id": i, "provider_id": call.provider_id, "tool": call.name, "arguments": call.arguments}
        for i, call in zip(ids, reply.calls, strict=True)
    ]
    message: dict[str, Any] = {"role": "assistant", "text": reply.text, "calls": calls}
    if reply.reasoning:
        message["reasoning"] = reply.reasoning
    return [message, *({"role": "tool", "call": i, "tool": "crm__find", "text": "found"} for i in ids)]
