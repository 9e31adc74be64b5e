"""Where a command runs: apart from the store, Temporal, other runs, credentials and the network.

An agent can write what it then runs, so a command sees only its own workspace, the system's programs, the worker's
Python, and what the bundle names; it has a process namespace of its own, which ends with it. `bubblewrap` makes that
out of Linux namespaces. Where it is missing or not allowed to, `problem` says why, and every command asks a person.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from activities.tools.errors import ToolError

INSIDE = "/workspace"
"""The workspace, as an isolated command sees it: the same on every machine."""
SCRATCH = Path("/tmp")  # noqa: S108  its own: in memory, and gone after the command
SCRATCH_BYTES = 1 << 30
PROCESSES = 1000
_PASSED = ("LANG", "LC_ALL", "TZ")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|^(PERDURE|TEMPORAL|OPENAI)_", re.IGNORECASE)
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("alternatives", "ca-certificates", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("mime.types", "nsswitch.conf", "passwd", "pki", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
    *("timezone",),
)


class Place(BaseModel):
    """What a bundle says of where commands run, as `[shell]`. `paths` are further folders that they may read;
    `environment` names variables of the worker that are passed on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: bool = False
    paths: list[str] = Field(default_factory=list)
    environment: list[str] = Field(default_factory=list)

    @field_validator("paths")
    @classmethod
    def _absolute(cls, value: list[str]) -> list[str]:
        if wrong := [path for path in value if not path.startswith("/") or os.path.normpath(path) == "/"]:
            raise ValueError(f"{wrong[0]!r} is no absolute path below /")
        return value

    @field_validator("environment")
    @classmethod
    def _no_secret(cls, value: list[str]) -> list[str]:
        if wrong := [name for name in value if _SECRET.search(name)]:
            raise ValueError(f"{wrong[0]!r} looks like a secret; commands get none")
        return value


def place_of(options: Mapping[str, Any]) -> Place:
    """The bundle's options. Raises `ToolError` that names what is wrong with them."""
    try:
        return Place.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the options"
        raise ToolError(f"the bundle's options of this tool are wrong: {where}: {first['msg']}") from None


def ask_without_isolation(arguments: dict[str, Any], options: dict[str, Any]) -> str | None:
    """A reason to ask a person: nothing keeps the command from the store, from Temporal, or from approving itself."""
    why = problem()
    if why is not None:
        return f"commands are not isolated on this worker: {why}"
    try:
        place = place_of(options)
    except ToolError as error:
        return str(error)
    return "with the network a command can reach Temporal and decide for people" if place.network else None


@functools.cache
def problem() -> str | None:
    """Why commands cannot be isolated on this machine, or None. Tried once in each process."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    with tempfile.TemporaryDirectory(prefix="perdure-isolation-") as folder:
        try:
            tried = subprocess.run(
                isolated(["true"], Path(folder), Place(), writable=True),
                env=environment(Place(), SCRATCH),
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bwrap cannot be run ({type(error).__name__})"
    if tried.returncode:
        said = tried.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"bwrap is not allowed to make namespaces here ({''.join(said)[:200]})"
    return None


def isolated(argv: list[str], workspace: Path, place: Place, *, writable: bool) -> list[str]:
    """The command line that runs `argv` in isolation, in the workspace."""
    line = [
        *("bwrap", "--unshare-all", *(["--share-net"] if place.network else [])),
        *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "workspace"),
        *("--proc", "/proc", "--dev", "/dev", "--size", str(SCRATCH_BYTES), "--tmpfs", str(SCRATCH)),
    ]
    etc = [*_ETC, *(("hosts", "resolv.conf") if place.network else ())]
    for path in [*_SYSTEM, *(f"/etc/{name}" for name in etc), *_python(), *place.paths]:
        line += ["--ro-bind-try", path, path]
    line += ["--bind" if writable else "--ro-bind", str(workspace), INSIDE, "--chdir", INSIDE, "--"]
    return [*line, *_limited(), *argv]


def environment(place: Place, home: Path) -> dict[str, str]:
    """All that a command is told of the environment. Nothing in it is a secret."""
    names = [*_PASSED, *place.environment]
    passed = {name: os.environ[name] for name in names if name in os.environ}
    path = ":".join(dict.fromkeys([f"{sys.prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"]))
    return {"LANG": "C.UTF-8", **passed, "PATH": path, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1"}


def _python() -> list[str]:
    """The worker's Python, where it is not the system's: what an agent needs to run tests."""
    tops = dict.fromkeys((sys.base_prefix, sys.prefix))
    return [
        f"{top}/{part}" for top in tops if top != "/usr" for part in ("bin", "include", "lib", "lib64", "pyvenv.cfg")
    ]


def _limited() -> list[str]:
    """Inside a user namespace the count of processes begins anew, except that the system's root has no limit."""
    program = "/usr/bin/prlimit"
    return [program, f"--nproc={PROCESSES}", "--core=0", "--"] if Path(program).exists() else []
