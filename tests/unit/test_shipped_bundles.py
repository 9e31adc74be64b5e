"""The shipped bundles: they load, and their policy says what their prompts promise."""

from pathlib import Path
from typing import Any

import pytest

from activities.bundles import build
from activities.judge import ruling
from activities.manifest import Manifest
from activities.policy import recovery_effect
from activities.tools import Registry, load_tools, sandbox
from activities.world import spec_of

BUNDLES = Path(__file__).parents[2] / "workflows" / "bundles"
TOOLS = load_tools()


def manifest(name: str) -> Manifest:
    return build(name, "1", BUNDLES / name / "1", lambda globs: [spec_of(tool) for tool in TOOLS.match(globs)])


def decision(of: Manifest, tool: str, registry: Registry = TOOLS, **arguments: Any) -> str:
    spec = of.tool(tool)
    return "none" if spec is None else ruling(of, registry, spec, arguments)[0]


@pytest.mark.parametrize("folder", sorted(BUNDLES.glob("*/*")), ids=lambda folder: folder.parent.name)
def test_each_loads_and_names_tools_that_exist(folder: Path) -> None:
    assert build(folder.parent.name, folder.name, folder, lambda globs: [spec_of(t) for t in TOOLS.match(globs)]).tools


@pytest.mark.parametrize("name", ["initializer", "coder", "evaluator"])
def test_a_project_s_sessions_run_commands_by_themselves_only_in_isolation(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = manifest(name)
    for reason, wanted in ((None, "allow"), ("a test says so", "ask")):
        monkeypatch.setattr(sandbox, "problem", lambda reason=reason: reason)
        assert decision(made, "shell", argv=["pytest"]) == wanted
        assert decision(made, "git_log", count=1, path=".") == wanted


def test_the_evaluator_changes_nothing_that_is_kept() -> None:
    made = manifest("evaluator")
    effects = {tool.name: recovery_effect(made, tool, {"argv": ["sh"]}) for tool in made.tools}
    assert set(effects.values()) == {"read"}


@pytest.mark.parametrize("path", ["tasks.json", "./tasks.json"])
def test_the_coder_does_not_write_the_list_of_tasks(path: str) -> None:
    made = manifest("coder")
    assert decision(made, "write_file", path=path, content="") == "deny"
    assert decision(made, "edit_file", path=path, old="", new="") == "deny"
    assert decision(made, "write_file", path="src/tasks.py", content="") == "allow"
