"""The settings, and the only place that reads the environment."""

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
    """A setting that cannot be used. The message names the variable and the remedy."""


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
    )


def home() -> Path:
    """The folder `.perdure` of the checkout that this code is in, so that a worker's working directory does not matter;
    of the working directory where the code was installed away from its checkout."""
    top = CHECKOUT if (CHECKOUT / "pyproject.toml").is_file() else Path.cwd()
    return top / ".perdure"


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
