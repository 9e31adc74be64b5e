"""Everything of the world that the activities touch, handed to them in one piece by the worker."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from activities.ancestry import Ancestry
from activities.bundles import Bundles
from activities.checkpoints import Checkpoints
from activities.context import Contexts
from activities.earlier import EarlierContents
from activities.entries import Entries
from activities.errors import redact, spellings
from activities.gateway import Gateway, Lookup
from activities.ledger import Ledger
from activities.manifest import ToolSpec, tool_digest
from activities.memory import Memory
from activities.routing import Router
from activities.segments import Segments
from activities.store import Store
from activities.tools import Registry, Tool
from activities.tools.executor import Executor
from activities.workspaces import Workspaces

MEMORY_TOOLS = "activities.tools.memory"


class World:
    """The parts, wired. `has_search_attributes` is what the worker found in its namespace; `shows_digest`: whether the
    one for the bundle's digest is among them."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        executor: Executor,
        lookup: Lookup,
        *,
        bundle_folders: Sequence[Path] = (),
        workspaces: Path,
        credentials: Mapping[str, str] | None = None,
        secrets: Sequence[str] = (),
        private_hosts: Sequence[str] = (),
        build_id: str = "",
        has_search_attributes: bool = False,
        shows_digest: bool = False,
    ) -> None:
        self.store, self.registry, self.executor = store, registry, executor
        self.secrets = spellings([*(credentials or {}).values(), *secrets])
        self.gateway = Gateway(lookup, self.secrets)
        self.router = Router(self.gateway)
        self.entries = Entries(store)
        self.checkpoints = Checkpoints(store)
        self.segments = Segments(store, self.checkpoints, self.entries)
        self.contexts = Contexts(self.checkpoints, self.entries, self.segments)
        self.ledger = Ledger(store)
        self.ancestry = Ancestry(store, self.ledger, self.entries)
        self.memory = Memory(store)
        self.bundles = Bundles(store, bundle_folders)
        self.workspaces = Workspaces(store, self.entries, workspaces)
        self.earlier = EarlierContents(store, workspaces)
        self.credentials = dict(credentials or {})
        self.private_hosts = tuple(private_hosts)
        self.build_id = build_id
        self.has_search_attributes, self.shows_digest = has_search_attributes, shows_digest

    def specs(self, globs: Sequence[str]) -> list[ToolSpec]:
        """The tools that a bundle's globs name. Raises UnknownTool, which names those that exist."""
        return [spec_of(tool) for tool in self.registry.match(globs)]

    def memory_for(self, tool: Tool) -> Memory | None:
        """The memory across runs, for the tools that are made for it."""
        return self.memory if tool.module == MEMORY_TOOLS else None

    def redact(self, text: str) -> str:
        """The text without the secrets that this worker holds."""
        return redact(text, self.secrets)

    def redact_data(self, data: bytes) -> bytes:
        """Binary data without the secrets that this worker holds: each of its bytes is taken for a character."""
        spelled = [secret.encode().decode("latin-1") for secret in self.secrets]
        return redact(data.decode("latin-1"), spelled).encode("latin-1")


def spec_of(tool: Tool) -> ToolSpec:
    """A tool as a manifest pins it."""
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        parameters=tool.schema,
        effect=tool.effect,
        on_unknown=tool.on_unknown,
        local=tool.local,
        question=tool.question,
        timeout=tool.timeout,
        key_valid=tool.key_valid,
        digest=tool_digest(tool),
    )
