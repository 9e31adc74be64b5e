"""The operation a tool is called for: what a tool knows about the call besides its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from activities.tools.errors import ToolError


def credential_key(name: str) -> str:
    """`crm.eu` -> `CRM_EU`: the part of the variable PERDURE_CREDENTIAL_<NAME> that names the credential."""
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


class Recollection(Protocol):
    """The memory across runs, as the tools `remember` and `recall` get it."""

    async def remember(self, scope: str, key: str, value: str, operation: str) -> int:
        """Writes a version and gives its number; the same operation writes one."""

    async def recall(self, scope: str, key: str) -> dict[str, Any] | None:
        """The newest version, or None."""

    async def keys(self, scope: str) -> list[str]:
        """The keys of a scope."""


class Starter(Protocol):
    """Sub-agents, as the tool `delegate` gets them: each is known by the operation that starts it."""

    async def start(self, operation: str, arguments: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Starts one, or finds it started."""

    async def find(self, operation: str, arguments: dict[str, Any], options: dict[str, Any]) -> dict[str, Any] | None:
        """The one that was started, or None."""

    async def stop(self, child: str) -> None:
        """Asks one to cancel."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One tool call, the same through all its attempts.

    `idempotency_key` is what to send to a side that honours keys; `arguments` are final: validated, defaults filled in,
    JSON values; `attempt` counts from 1; `approved_by` is who said yes, if anybody was asked; `workspace` is the run's
    own folder; `options` is the bundle's section for this tool; `private_hosts` are the private places that `fetch` may
    reach; `trailers` what a commit says at its end. `credentials` are not shown by `repr`: take them by `credential`.
    `memory` is for the tools that remember, `starter` for the one that delegates; no other gets them, and they stay in
    this process.
    """

    operation_id: str
    tool: str
    thread: str
    workspace: Path
    idempotency_key: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1
    approved_by: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    private_hosts: tuple[str, ...] = ()
    trailers: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    memory: Recollection | None = field(default=None, repr=False, compare=False)
    starter: Starter | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """The idempotency key is the operation id unless another one is given."""
        object.__setattr__(self, "idempotency_key", self.idempotency_key or self.operation_id)

    async def credential(self, name: str) -> str:
        """The secret called `name`. Raises `ToolError` that names the variable to set, when there is none."""
        wanted = credential_key(name)
        for key, secret in self.credentials.items():
            if credential_key(key) == wanted and secret:
                return secret
        raise ToolError(
            f"the tool {self.tool} needs the credential {name!r}, which is not set here;"
            f" the operator sets it as PERDURE_CREDENTIAL_{wanted} for the worker"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Mappings become plain dicts, which any process can unpickle."""
        plain = {key: dict(value) if isinstance(value, Mapping) else value for key, value in self.__dict__.items()}
        return {**plain, "memory": None, "starter": None}
