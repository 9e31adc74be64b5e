"""The bytes of an answer as JSON objects: a stream of server-sent events, or one body, whichever came."""

import codecs
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from activities.reply import Passing

MOST_BYTES = 32 * 1024 * 1024
"""The most of one answer that is read. A server that sends without end must not fill the memory."""

DONE: dict[str, Any] = {}
"""Stands for `[DONE]`, with which a stream says that it is at its end: it was not cut off."""

BODY: dict[str, Any] = {}
"""Comes after the one object of an answer that was no stream: JSON that can be read was not cut off."""


async def read_objects(body: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, Any]]:
    """The objects of an answer. What is asked for does not decide, but what comes: servers mix both up.

    Raises Passing for what is neither, and for more than `MOST_BYTES`.
    """
    decoder, lines = codecs.getincrementaldecoder("utf-8")("replace"), _Lines()
    head, size = list[str](), 0
    as_stream: bool | None = None
    async for data in body:
        size += len(data)
        if size > MOST_BYTES:
            raise Passing(f"the answer is longer than {MOST_BYTES} bytes", unusable=True)
        text = decoder.decode(data)
        if not as_stream:
            head.append(text)
            if as_stream is None and (begun := text.lstrip("\ufeff \r\n\t")):
                as_stream = begun[0] not in "{["
            if not as_stream:
                continue
            text = "".join(head).lstrip("\ufeff")
        for found in lines.feed(text):
            yield found
        if lines.done:
            break
    if as_stream:
        for found in lines.end():
            yield found
        if lines.done:
            yield DONE
    else:
        yield _object("".join(head) + decoder.decode(b"", True), "the body")
        yield BODY


class _Lines:
    """Server-sent events out of text in pieces of any size."""

    def __init__(self) -> None:
        self._rest: list[str] = []
        self._data: list[str] = []
        self._event = ""
        self.done = False

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        if "\n" not in text:  # a long line may come in very many pieces
            self._rest.append(text)
            return
        *lines, rest = "".join([*self._rest, text]).split("\n")
        self._rest = [rest]
        for line in lines:
            if self.done:
                return
            yield from self._line(line.rstrip("\r"))

    def end(self) -> Iterator[dict[str, Any]]:
        """What an event without an empty line after it leaves: some servers forget the last one."""
        if not self.done:
            yield from self._line("".join(self._rest).rstrip("\r"))
            yield from self._line("")

    def _line(self, line: str) -> Iterator[dict[str, Any]]:
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        elif field == "event":
            self._event = value.strip()
        elif not line:
            yield from self._dispatch()
        elif line and field not in ("id", "retry", ""):
            raise Passing("the stream holds what is no event", unusable=True)

    def _dispatch(self) -> Iterator[dict[str, Any]]:
        data, event, self._data, self._event = self._data, self._event, [], ""
        whole = "\n".join(data).strip()
        self.done = self.done or whole.endswith("[DONE]")
        if not whole or whole == "[DONE]":
            return
        try:
            found = [_object(whole, "an event")]
        except Passing:
            if len(data) < 2:
                raise
            found = [_object(line, "an event") for line in data if line.strip() not in ("", "[DONE]")]
        for value in found:
            yield {"error": value.get("error", value)} if event == "error" else value


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Passing(f"{what} of the answer is not JSON", unusable=True) from None
    if not isinstance(value, dict):
        raise Passing(f"{what} of the answer is no object but {type(value).__name__}", unusable=True)
    return value
