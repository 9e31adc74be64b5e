"""Copies of this checkout with other code in them, for tests of what a change of code does."""

import shutil
from pathlib import Path

from tests.integration.kit import ROOT

PARTS = ("workflows", "activities", "workers", "scripts", "tests")


def checkout(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy below `folder` with the changes: file, text, other text. The text must be there."""
    top = folder / "checkout"
    for part in PARTS:
        shutil.copytree(ROOT / part, top / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", top)
    for name, old, new in changes:
        text = (top / name).read_text()
        assert old in text, f"{name} does not hold {old!r}"
        (top / name).write_text(text.replace(old, new, 1))
    return top
