"""The build id of this code: what a run is pinned to, made of the workflow code alone.

Prompts, tools and activities change without a new build, since what they decide is in history. Workflow code is what a
replay runs again.
"""

import hashlib
from pathlib import Path

import workflows
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
