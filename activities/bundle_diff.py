"""What differs between two versions of a bundle, as a unified diff of texts."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path

from activities.manifest import Manifest

FILES = ("bundle.toml", "prompt.md")


def files_of(folder: Path) -> dict[str, str]:
    """The files of a bundle folder that make its content."""
    return {name: (folder / name).read_text("utf-8", errors="replace") for name in FILES if (folder / name).is_file()}


def tools_of(manifest: Manifest) -> dict[str, str]:
    """The tools that a manifest pins, as texts."""
    return {
        f"tools/{tool.name}": json.dumps(tool.model_dump(exclude={"digest"}), indent=1, sort_keys=True) + "\n"
        for tool in manifest.tools
    }


def difference(old: Mapping[str, str], new: Mapping[str, str], names: tuple[str, str]) -> str:
    """A unified diff over all texts, with the names of both sides in front of each; empty where nothing differs."""
    parts: list[str] = []
    for name in sorted({*old, *new}):
        before, after = (side.get(name, "").splitlines() for side in (old, new))
        parts += difflib.unified_diff(before, after, f"{names[0]}/{name}", f"{names[1]}/{name}", n=1, lineterm="")
    return "\n".join(parts)
