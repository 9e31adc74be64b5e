"""The build id of this code: what a run is pinned to, made of the workflow code alone.

Prompts, tools and activities change without a new build, since what they decide is in history. Workflow code is what a
replay runs again.
"""

import hashlib
import re
from pathlib import Path

import workflows
from workers.settings import SettingsError
from workflows.state import WORKFLOW_VERSION


def build_id(folder: Path | None = None) -> str:
    """`<workflow version>-<12 digits of the sha256 of all Python files below workflows/>`."""
    top = folder or Path(workflows.__file__).parent
    found = hashlib.sha256()
    for path in sorted(top.rglob("*.py")):
        data = path.read_bytes()
        found.update(f"{path.relative_to(top).as_posix()}\0{len(data)}\0".encode())
        found.update(data)
    return f"{WORKFLOW_VERSION}-{found.hexdigest()[:12]}"


def check_build_id(build: str) -> None:
    """Raises SettingsError for a build id that was made of other workflow code than this. Ids of one's own choice are
    free."""
    if re.fullmatch(r"\d+-[0-9a-f]{12}", build) and build != (own := build_id()):
        raise SettingsError(
            f"PERDURE_BUILD_ID: {build} was made of other workflow code, and this one is {own}: its runs would stop on "
            f"what it does otherwise. Set it to {own} (`perdure build-id`), or go to the checkout of {build}"
        )
