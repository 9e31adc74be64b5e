"""The tools a worker has."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from types import ModuleType

from activities.migrations import Migration
from activities.tools.declaration import Tool, wire_name
from activities.tools.errors import ToolDeclarationError, ToolLoadError, ToolSetupError, UnknownTool

SHIPPED = ("files", "web", "mail", "people", "memory", "shell", "git", "delegate")


class Registry:
    """Tools by name. A name is one name in both its forms: `crm.refund` and `crm__refund`."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.migrations: list[Migration] = []
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Adds a tool; the same one again is no fault. Raises `ToolDeclarationError` when another has its name."""
        known = self._tools.setdefault(tool.wire_name, tool)
        if known is not tool:
            raise ToolDeclarationError(
                f"two tools are called {tool.wire_name!r}: {known.name!r} of {known.module} and {tool.name!r} of"
                f" {tool.module}; give one of them another name="
            )

    def get(self, name: str) -> Tool | None:
        """The tool called `name`, in either form, or None."""
        return self._tools.get(wire_name(name))

    def match(self, globs: Sequence[str]) -> list[Tool]:
        """The tools that any of `globs` names, sorted by name. A pattern may match nothing; a plain name must be a
        tool's: raises `UnknownTool` that lists those which are not."""
        plain = {glob: self.get(glob) for glob in globs if not any(sign in glob for sign in "*?[")}
        if missing := sorted(name for name, tool in plain.items() if tool is None):
            raise UnknownTool(
                f"no tool is called {', '.join(missing)}; there are: {', '.join(tool.name for tool in self)}."
                " Tools of your own are loaded from the modules named in PERDURE_TOOLS"
            )
        named = [tool for tool in plain.values() if tool]
        return [tool for tool in self if tool in named or any(fnmatchcase(tool.name, glob) for glob in globs)]

    def __iter__(self) -> Iterator[Tool]:
        """By name."""
        return iter(sorted(self._tools.values(), key=lambda tool: tool.name))

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None


def load_tools(modules: Sequence[str] = ()) -> Registry:
    """The shipped tools and all that stand at module level in `modules`.

    Raises `ToolLoadError` for a module that cannot be imported or holds no tool, `ToolDeclarationError` for a tool that
    is declared wrongly or has another's name.
    """
    registry = Registry()
    for name in [*(f"activities.tools.{module}" for module in SHIPPED), *modules]:
        values = list(vars(_load(name)).values())
        found = [value for value in values if isinstance(value, Tool)]
        migrations = [value for value in values if isinstance(value, Migration)]
        registry.migrations += migrations
        if not found and not migrations:
            raise ToolLoadError(f"the module {name} holds no tool; declare one at its top level with @tool(effect=…)")
        for tool in found:
            registry.add(tool)
    return registry


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ToolSetupError:
        raise
    except Exception as error:  # whatever a user's module raises while it is imported
        raise ToolLoadError(
            f"the module {name} with tools cannot be imported: {type(error).__name__}: {error};"
            " check the names in PERDURE_TOOLS and that each is importable where the worker runs"
        ) from error
