"""What bundles need, checked: that they load, that their tools are there, and that their models answer."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from activities.bundles import Bundles, build
from activities.errors import Failure
from activities.gateway import Gateway
from activities.manifest import Model
from activities.reply import Ask, NoSink
from activities.store import open_store
from activities.tools import Registry
from activities.trail import Trail
from activities.world import spec_of
from workers.settings import Settings

State = Literal["ok", "warn", "bad"]
ASK_SECONDS = 60.0
"""How long each model may take; all of them are asked at once."""


@dataclass(frozen=True)
class Finding:
    """What one check found, and the command or act that mends it."""

    check: str
    state: State
    said: str
    remedy: str = ""


async def check_bundles(settings: Settings, registry: Registry | None, routes: list[Model]) -> list[Finding]:
    """Every bundle loads, and its tools exist. `routes` gets its model routes, each once."""
    if registry is None:
        return [Finding("bundles", "warn", "not checked: the tools do not load")]
    known = Bundles(open_store(settings.store), settings.bundle_folders).known()
    found, good, each_once = list[Finding](), 0, dict[tuple[str, ...], Model]()
    for name, versions in known.items():
        for version, folder in versions.items():
            try:
                built = build(name, version, folder, lambda globs: [spec_of(tool) for tool in registry.match(globs)])
            except Failure as error:
                found.append(Finding("bundles", "bad", error.message, f"mend {folder / 'bundle.toml'}"))
                continue
            good += 1
            for route in built.file.model:
                each_once[route.model, route.base_url_env, route.api_key_env, route.api] = route
    routes += each_once.values()
    return [*found, Finding("bundles", "ok", f"{good} load")]


async def check_models(settings: Settings, routes: Sequence[Model]) -> list[Finding]:
    """Each route by itself, and within its own time."""
    gateway = Gateway(settings.lookup)
    try:
        return list(await asyncio.gather(*(_ask(gateway, route) for route in routes)))
    finally:
        await gateway.close()


async def _ask(gateway: Gateway, route: Model) -> Finding:
    """One request of a few tokens."""
    small = route.model_copy(update={"max_output_tokens": 16, "stream": False})
    question = Ask("You are asked whether you can be reached.", [{"role": "user", "text": "Say ok."}], [])
    trail, until = Trail(), time.monotonic() + ASK_SECONDS
    try:
        await gateway.ask(0, small, question, trail, until, NoSink())
    except Failure as error:
        return Finding("model", "bad", error.message, f"look at {route.base_url_env} and {route.api_key_env}")
    where = f"{route.base_url_env}, with {route.api_key_env}, {route.api}"
    return Finding("model", "ok", f"{route.model} answers ({where})")
