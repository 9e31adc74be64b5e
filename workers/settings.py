"""The settings, and the only place that reads the environment."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError

from activities.store import open_store

CREDENTIAL = "PERDURE_CREDENTIAL_"
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)", re.IGNORECASE)
CHECKOUT = Path(__file__).resolve().parent.parent


class SettingsError(Exception):
    """A setting that cannot be used. The message names the variable, before a colon, and the remedy."""

    @property
    def variable(self) -> str:
        """The variable's name."""
        return str(self).partition(":")[0]


@dataclass(frozen=True)
class Slots:
    """How much runs at once in one process, and how fast a queue gives work out."""

    agents: int = 100
    """Model turns, and the other activities of the agents' queue."""
    tools: int = 50
    local: int = 50
    """Quick reads inside workflow tasks."""
    workflow_tasks: int = 50
    cached_runs: int = 1000
    agents_per_second: float | None = None
    """Of the whole queue, over all workers; None is no limit."""
    tools_per_second: float | None = None


@dataclass(frozen=True)
class Settings:
    """What the environment says. Folders are absolute."""

    store: str
    bundle_folders: tuple[Path, ...]
    tool_modules: tuple[str, ...]
    workspaces: Path
    task_queue: str
    build_id: str
    private_hosts: tuple[str, ...]
    credentials: Mapping[str, str] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    slots: Slots = Slots()
    grace: float = 25.0
    """Seconds from the first SIGTERM to the end of the process, whatever happens."""
    health: tuple[str, int] | None = None
    """Where the health endpoint listens; None: nowhere."""
    codec: str = ""
    """`module:name` of a payload codec; empty: payloads are plain."""

    def secrets(self) -> list[str]:
        """All values that must not be seen outside: credentials, passwords inside their URLs, and variables whose name
        says that they hold a key, a token, a secret or a password."""
        found = [value for name, value in self.environment.items() if _SECRET.search(name)]
        urls = [urlsplit(value) for value in found if "://" in value]
        return [*found, *(unquote(url.password) for url in urls if url.password)]

    def lookup(self, name: str) -> str | None:
        """A variable that a bundle names (`api_key_env`, `base_url_env`)."""
        return self.environment.get(name)


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Reads and checks the environment. Raises SettingsError."""
    env = os.environ if environment is None else environment
    queue = env.get("PERDURE_TASK_QUEUE") or "perdure"
    build_id = env.get("PERDURE_BUILD_ID") or ""
    if build_id and not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", build_id):
        raise SettingsError(f"PERDURE_BUILD_ID: {build_id!r} is no build id; use letters, digits, . - and _")
    folders = tuple(Path(part).resolve() for part in (env.get("PERDURE_BUNDLES") or "").split(":") if part)
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise SettingsError(f"PERDURE_BUNDLES: there is no folder {missing[0]}; create it or take it out")
    store = env.get("PERDURE_STORE") or (home() / "store").as_uri()
    try:
        open_store(store)
    except (ValueError, BaseError) as error:
        said = str(error).splitlines()[0].removeprefix("PERDURE_STORE: ")
        raise SettingsError(f"PERDURE_STORE: {said}") from None
    return Settings(
        store=store,
        bundle_folders=folders,
        tool_modules=_names(env.get("PERDURE_TOOLS")),
        workspaces=Path(env.get("PERDURE_WORKSPACES") or home() / "workspaces").resolve(),
        task_queue=queue,
        build_id=build_id,
        private_hosts=_names(env.get("PERDURE_FETCH_PRIVATE")),
        credentials={key.removeprefix(CREDENTIAL): value for key, value in env.items() if key.startswith(CREDENTIAL)},
        environment=dict(env),
        slots=Slots(
            agents=_count(env, "PERDURE_SLOTS_AGENTS", Slots.agents),
            tools=_count(env, "PERDURE_SLOTS_TOOLS", Slots.tools),
            local=_count(env, "PERDURE_SLOTS_LOCAL", Slots.local),
            workflow_tasks=_count(env, "PERDURE_SLOTS_WORKFLOW_TASKS", Slots.workflow_tasks),
            cached_runs=_count(env, "PERDURE_CACHED_RUNS", Slots.cached_runs),
            agents_per_second=_positive(env, "PERDURE_RATE_AGENTS", None),
            tools_per_second=_positive(env, "PERDURE_RATE_TOOLS", None),
        ),
        grace=_positive(env, "PERDURE_GRACE", Settings.grace) or Settings.grace,
        health=_address(env, "PERDURE_HEALTH"),
        codec=(env.get("PERDURE_CODEC") or "").strip(),
    )


def read_usable() -> tuple[Settings, list[SettingsError]]:
    """The settings, as if those that cannot be used were not set; and what is wrong with those."""
    environment, wrong = dict(os.environ), list[SettingsError]()
    while True:
        try:
            return read_settings(environment), wrong
        except SettingsError as error:
            if environment.pop(error.variable, None) is None:
                raise  # nobody set it
            wrong.append(error)


def home() -> Path:
    """The folder `.perdure` of the checkout that this code is in, so that a worker's working directory does not matter;
    of the working directory where the code was installed away from its checkout."""
    top = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else Path.cwd()
    return top / ".perdure"


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _positive(env: Mapping[str, str], name: str, default: float | None) -> float | None:
    text = (env.get(name) or "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise SettingsError(f"{name}: {text!r} is not a number above 0")
    return value


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    text = (env.get(name) or "").strip()
    if text and (not text.isdecimal() or int(text) < 2):
        raise SettingsError(f"{name}: {text!r} is not a whole number of at least 2")
    return int(text) if text else default


def _address(env: Mapping[str, str], name: str) -> tuple[str, int] | None:
    """`port` on the loopback interface, or `host:port`."""
    text = (env.get(name) or "").strip()
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{name}: {text!r} is neither a port nor host:port")
    return host.strip("[]") or "127.0.0.1", int(port)
