"""What can go wrong with a tool, and whose fault it is.

    ToolError             the tool says no: an answer for the model
    ToolTimeout           the deadline passed; whether the tool acted is unknown
    ToolCrash             the tool's code broke in a way that cannot be shown as its own exception
    ToolSetupError        whoever writes or configures tools has to act; raised at start-up
      ToolDeclarationError    a tool is declared wrongly
      ToolLoadError           a module with tools cannot be loaded
      UnknownTool             a name that no tool has

Any other exception that comes out of a tool is a fault in it.
"""

from __future__ import annotations


class ToolError(Exception):
    """The tool could not do it. The message is told to the model, so it says what to do instead and holds no secret."""


class ToolTimeout(TimeoutError):
    """The tool was stopped at its deadline, after `seconds`. It may have acted before that."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"no result within {self.seconds:g} s"


class ToolCrash(RuntimeError):
    """The tool's code ended without a result: its process died, it called `exit`, its exception cannot be carried."""


class ToolSetupError(Exception):
    """Tools are declared or configured wrongly. The message names the tool or module, the reason and the remedy."""


class ToolDeclarationError(ToolSetupError, TypeError):
    """A tool is declared wrongly."""


class ToolLoadError(ToolSetupError, ImportError):
    """A module that should hold tools cannot be loaded or holds none."""


class UnknownTool(ToolSetupError, LookupError):
    """No tool has this name."""
