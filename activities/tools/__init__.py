"""Declaring, finding and running tools."""

from __future__ import annotations

from activities.tools.declaration import Effect, OnUnknown, Tool, tool
from activities.tools.errors import (
    ToolCrash,
    ToolDeclarationError,
    ToolError,
    ToolLoadError,
    ToolSetupError,
    ToolTimeout,
    UnknownTool,
)
from activities.tools.operation import Operation
from activities.tools.registry import Registry, load_tools

__all__ = [
    "Effect",
    "OnUnknown",
    "Operation",
    "Registry",
    "Tool",
    "ToolCrash",
    "ToolDeclarationError",
    "ToolError",
    "ToolLoadError",
    "ToolSetupError",
    "ToolTimeout",
    "UnknownTool",
    "load_tools",
    "tool",
]
