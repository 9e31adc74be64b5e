"""A model without a key: an OpenAI-compatible HTTP server that plays script files.

    python -m scripts.scripted_model --scripts DIR --port N --var a=b

    POST /v1/chat/completions   the next turn of the script that `model` names, streamed or not
    GET  /v1/models             the scripts
    GET  /stats                 {"requests": {script: {turn index: requests}}, "refused": [{"model", "message"}]}

The turn to play is the number of assistant messages in the request. The server remembers nothing that matters, so
retries, several workers and its own restart are harmless. A request that breaks the protocol, or that the script did
not foresee, gets a 400 that says what is wrong.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from scripts.chat_protocol import (
    RefusedError,
    answer,
    check_messages,
    check_tools,
    choose,
    content_text,
    deltas,
    judgement,
    turn_index,
    usage,
)
from scripts.model_script import Script, ScriptError, Turn, load_scripts

Hook = Callable[[str, int], None]
BODY_LIMIT = 64 * 1024 * 1024  # bytes


class ScriptedModel(ThreadingHTTPServer):
    """The server; made by `serve`. As a context manager it closes itself."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], scripts: Mapping[str, Script], default: str | None, on_turn: Hook | None
    ) -> None:
        super().__init__(address, _Handler)
        self.scripts = scripts
        self.default = default
        self.on_turn = on_turn
        self._lock = threading.Lock()
        self._requests: dict[str, Counter[int]] = {}
        self._refused: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/v1"

    def stats(self) -> dict[str, Any]:
        """Requests per script and turn index (from 0), counted as they arrive, and the refused ones."""
        with self._lock:
            requests = {
                name: {str(index): counts[index] for index in sorted(counts)} for name, counts in self._requests.items()
            }
            return {"requests": requests, "refused": list(self._refused)}

    def script_for(self, model: Any, goal: str) -> str:
        """The script that is meant for a goal, else the one that a model's name stands for; raises RefusedError."""
        meant = [name for name, each in self.scripts.items() if each.when and all(text in goal for text in each.when)]
        return max(meant, key=lambda name: len(self.scripts[name].when)) if meant else self.script_of(model)

    def script_of(self, model: Any) -> str:
        """The script that a model's name stands for; raises RefusedError."""
        name = model if isinstance(model, str) and model in self.scripts else self.default
        if name is None:
            known = ", ".join(sorted(self.scripts))
            raise RefusedError(
                f"model: there is no script {model!r} (scripts: {known})", code="model_not_found", status=404
            )
        return name

    def count(self, name: str, index: int) -> None:
        """Count a request that will be answered, and tell the hook."""
        with self._lock:
            self._requests.setdefault(name, Counter())[index] += 1
        if self.on_turn:
            self.on_turn(name, index)

    def refuse(self, model: Any, refused: RefusedError) -> None:
        """Remember a request that was not answered."""
        with self._lock:
            self._refused.append({"model": model, "message": str(refused)})

    def close(self) -> None:
        """Stop answering and free the port."""
        self.shutdown()
        self.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of an answer is no error: workers are killed in tests and demos."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer leaves in one piece; streams flush by themselves
    server: ScriptedModel

    def do_GET(self) -> None:
        if self.path == "/stats":
            self._send(200, self.server.stats())
        elif self.path == "/v1/models":
            models = [{"id": name, "object": "model", "owned_by": "script"} for name in sorted(self.server.scripts)]
            self._send(200, {"object": "list", "data": models})
        else:
            self._no_such_path()

    def do_POST(self) -> None:
        model: Any = None
        try:
            body = self._body()
            if self.path != "/v1/chat/completions":
                return self._no_such_path()
            model = body.get("model")
            self._complete(body)
        except RefusedError as refused:
            self.server.refuse(model, refused)
            self._send(refused.status, refused.body())

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_LIMIT:
            self.close_connection = True  # what follows on this connection cannot be told apart from the body
            raise RefusedError(f"the body needs a Content-Length of at most {BODY_LIMIT} bytes", status=411)
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            raise RefusedError(f"the body is not JSON: {error}", code="invalid_json") from error
        if not isinstance(body, dict):
            raise RefusedError("the body must be a JSON object", code="invalid_json")
        return body

    def _complete(self, body: dict[str, Any]) -> None:
        messages = check_messages(body.get("messages"))
        goal = next((content_text(message) for message in messages if message["role"] == "user"), "")
        name = self.server.script_for(body.get("model"), goal)
        offered, index = check_tools(body.get("tools")), turn_index(messages)
        if (judged := judgement(body.get("response_format"))) is not None:
            name, turn = f"{name}/{judged[0]}", judged[1]
        else:
            turn = choose(name, self.server.scripts[name], messages, offered)
        self.server.count(name, index)
        time.sleep(turn.delay)
        head = {"id": f"chatcmpl-{name}-{index}", "created": int(time.time()), "model": body.get("model", name)}
        counts = usage(turn, messages, body.get("tools"))
        message = answer(turn, index)
        if body.get("stream"):
            options = body.get("stream_options") or {}
            self._stream(head, message, turn, counts if options.get("include_usage") else None)
        else:
            choice = {"index": 0, "message": message, "finish_reason": turn.end, "logprobs": None}
            self._send(200, {**head, "object": "chat.completion", "choices": [choice], "usage": counts})

    def _stream(self, head: dict[str, Any], message: dict[str, Any], turn: Turn, counts: dict[str, Any] | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = {**head, "object": "chat.completion.chunk"}
        if counts:
            head["usage"] = None
        for delta in deltas(message):
            self._event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": turn.end}]})
        if counts:
            self._event({**head, "choices": [], "usage": counts})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, value: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _no_such_path(self) -> None:
        refused = RefusedError(f"there is no {self.command} {self.path} here", code="not_found", status=404)
        self._send(404, refused.body())

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing: `/stats` tells more than a line per request."""


def serve(
    scripts: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    variables: Mapping[str, str] | None = None,
    *,
    default_script: str | None = None,
    on_turn: Hook | None = None,
) -> ScriptedModel:
    """A server that already answers, on a thread of its own; `close()` ends it.

    `port` 0 takes a free one. `default_script` is played when a request's model names no script. `on_turn(script,
    index)` is called, on the request's thread, when a request was counted and before it is answered; the index counts
    from 0. Raises ScriptError for scripts that cannot be played and OSError for a port that is taken.
    """
    loaded = load_scripts(scripts, variables or {})
    if default_script is not None and default_script not in loaded:
        raise ScriptError(f"{scripts}: there is no script {default_script!r} (scripts: {', '.join(loaded)})")
    server = ScriptedModel((host, port), loaded, default_script, on_turn)
    run = partial(server.serve_forever, poll_interval=0.05)
    threading.Thread(target=run, name="scripted-model", daemon=True).start()
    return server


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripted_model", description="An OpenAI-compatible server playing scripts.")
    parser.add_argument("--scripts", type=Path, required=True, help="folder of NAME.toml files")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--var", type=_variable, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--default-script", metavar="NAME", help="played when the model of a request names no script")
    options = parser.parse_args(arguments)
    try:
        server = serve(
            options.scripts, options.host, options.port, dict(options.var), default_script=options.default_script
        )
    except (ScriptError, OSError) as error:
        print(f"scripted_model: {error}", file=sys.stderr)
        return 2
    print(f"listening on {server.url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
