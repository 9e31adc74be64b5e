"""The patches of the workflow code: where they are, and which open runs still need the old way of each."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import workflows
from workers.replaying import Replayed

CALLS = ("patched", "deprecate_patch")


@dataclass(frozen=True)
class Patch:
    """A patch, by its id. `where`: file and line of each call. `old` and `new`: the open runs that came by it, by the
    way that they took; a run that never comes by needs neither. `unknown`: those whose replay ended before its end."""

    id: str
    deprecated: bool
    where: list[str]
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def next(self) -> str:
        """What can be done with it now."""
        if self.old:
            return "keep both ways"
        if self.unknown:
            return f"leave it as it is: {len(self.unknown)} open runs do not replay, and may need the old way"
        return "take `deprecate_patch` out" if self.deprecated else "put `deprecate_patch` in the place of the old way"


def patches_in(folder: Path | None = None) -> list[Patch]:
    """Every call of `workflow.patched("…")` and `workflow.deprecate_patch("…")` below the folder (workflows/)."""
    top = folder or Path(workflows.__file__).parent
    found: dict[str, Patch] = {}
    for path in sorted(top.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        names = _constants(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
                continue
            argument = node.args[0]
            named = names.get(argument.id) if isinstance(argument, ast.Name) else getattr(argument, "value", None)
            patch = found.setdefault(str(named), Patch(str(named), node.func.attr == "deprecate_patch", []))
            patch.where.append(f"{path.relative_to(top.parent)}:{node.lineno}")
    return list(found.values())


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def sort_runs(patches: Iterable[Patch], replayed: Iterable[Replayed]) -> None:
    """Puts each run to the patches that it came by."""
    by_id = {patch.id: patch for patch in patches}
    for run in replayed:
        for name, taken in run.patches.items():
            if name in by_id:
                (by_id[name].new if taken else by_id[name].old).append(run.workflow_id)
        for patch in by_id.values() if run.fault is not None else ():
            if run.patches.get(patch.id) is not False:
                patch.unknown.append(run.workflow_id)
