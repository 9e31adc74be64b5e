"""What the person in front sees: rich in a terminal, plain lines elsewhere."""

import asyncio
import sys

from rich.console import Console
from rich.status import Status

WIDTH = 100  # characters of a text from the agent on one line


def clean(text: object, width: int = WIDTH) -> str:
    """One printable line: a model's text may hold anything, terminal sequences included."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    return line if len(line) <= width else line[: width - 1] + "…"


class Screen:
    """Lines, a spinner below them, and questions."""

    def __init__(self) -> None:
        self._console = Console(emoji=False, highlight=False, soft_wrap=True)
        self._spinner: Status | None = None
        self.can_ask = self._console.is_terminal and sys.stdin.isatty()

    def say(self, line: str = "", style: str | None = None) -> None:
        """One line."""
        self._console.print(line, style=style, markup=False, soft_wrap=True)
        self._console.file.flush()

    def title(self, line: str) -> None:
        """A line that begins a part."""
        self.say()
        self.say(line, style="bold")

    def busy(self, line: str) -> None:
        """What is going on, beside the spinner; nothing where there is no terminal."""
        if not self._console.is_terminal:
            return
        if self._spinner is None:
            self._spinner = self._console.status(line)
            self._spinner.start()
        self._spinner.update(line)

    def rest(self) -> None:
        """Take the spinner away."""
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    async def ask(self, question: str) -> str:
        """A line that the person types; empty at the end of input. Can be cancelled."""
        self.rest()
        self._console.print(question, end=" ", style="bold", markup=False)
        self._console.file.flush()
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            loop.remove_reader(sys.stdin)
            if not typed.done():
                typed.set_result(sys.stdin.readline())

        loop.add_reader(sys.stdin, read)
        try:
            return (await typed).strip()
        finally:
            loop.remove_reader(sys.stdin)
