"""The bench's model: one call a turn until all are made, then an answer. Over HTTP, or in the worker's own process.

It has no memory: the last mark in the request says what comes next. A request for structured output (the handoff of a
session, the summary of a middle) is answered by its schema, with the mark in it, so that the next session goes on.
"""

import json
import sys
import threading
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from activities.gateway import Gateway
from activities.manifest import Model as Route
from activities.reply import Ask, RawCall, Reply, Sink, price_usage
from activities.trail import Trail
from scripts.benches.workload import TEXT, Mark, letters


def call_of(at: Mark) -> RawCall | None:
    """The call that follows the mark; None when all are made."""
    if at.number >= at.turns:
        return None
    arguments = {"number": at.number + 1, "turns": at.turns, "size": at.size}
    return RawCall(f"c{at.number + 1}", at.tool, json.dumps(arguments))


def structured(schema: dict[str, Any], at: Mark) -> str:
    """JSON that satisfies a judgement's schema: every text and list of it says where the run is."""
    lists = {name: part.get("type") == "array" for name, part in schema["properties"].items()}
    return json.dumps({name: [f"{name}: {at}"] if many else f"{name}: {at}" for name, many in lists.items()})


def text_of(at: Mark) -> str:
    """What the model says beside its call."""
    return letters(f"text {at.number}", TEXT)


class InProcess(Gateway):
    """Answers at once, inside the activity: what a turn costs without HTTP."""

    async def ask(self, number: int, route: Route, ask: Ask, trail: Trail, until: float, sink: Sink) -> Reply:
        """The answer."""
        said = json.dumps([message["text"][:200] for message in ask.context[-1:]])
        if "[at " not in said:  # the first turn, or a session's: the mark is deep inside
            said = json.dumps([message["text"] for message in ask.context])
        at = Mark.last_in(said.encode())
        usage = price_usage(context_tokens(sum(len(message["text"]) for message in ask.context)), 0, 150, route.price)
        if ask.schema is not None:
            return Reply(text=structured(ask.schema, at), finish_reason="stop", usage=usage, model="bench")
        call = call_of(at)
        reason = "stop" if call is None else "tool_calls"
        calls = [] if call is None else [call]
        return Reply(text=text_of(at), calls=calls, finish_reason=reason, usage=usage, model="bench")


def context_tokens(size: int) -> int:
    """What the server says that a request of so many bytes has: about four a token."""
    return size // 4


class HttpModel(ThreadingHTTPServer, AbstractContextManager["HttpModel"]):
    """Chat Completions, on threads of the bench's own process. `asked`: the requests so far."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked = 0

    def __enter__(self) -> "HttpModel":
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """What OPENAI_BASE_URL is to be."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The worker is killed in the middle of a request: that is no error here."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpModel

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        data = json.dumps(completion(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


def completion(body: bytes) -> dict[str, Any]:
    """The answer to a request, as Chat Completions has it. A long context is not parsed: it would cost more than the
    whole turn does."""
    at = Mark.last_in(body)
    message: dict[str, Any] = {"role": "assistant", "content": text_of(at)}
    call = call_of(at)
    if b'"response_format"' in body:
        call, schema = None, json.loads(body)["response_format"]["json_schema"]["schema"]
        message["content"] = structured(schema, at)
    if call is not None:
        function = {"name": call.name, "arguments": call.arguments}
        message["tool_calls"] = [{"id": call.provider_id, "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
    read = context_tokens(len(body))
    usage = {"prompt_tokens": read, "completion_tokens": 150, "total_tokens": read + 150}
    made = {"id": "x", "object": "chat.completion", "created": 0, "model": "bench"}
    return {**made, "choices": [choice], "usage": usage}
