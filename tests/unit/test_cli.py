"""The command line as a whole."""

import importlib
import subprocess
import sys

import pytest
import typer

from scripts.cli import COMMANDS
from scripts.commands.fork import _split
from tests.integration.kit import ROOT


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there(name: str) -> None:
    function = getattr(importlib.import_module(f"scripts.commands.{COMMANDS[name][0]}"), name.replace("-", "_"))
    assert callable(function)
    assert function.__doc__


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['perdure']; from scripts.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "assert not {'temporalio', 'openai', 'pydantic'} & set(sys.modules), 'heavy'"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("which", ["run-83", "run-83@", "run-83@-1", "run-83@²", "@1"])
def test_what_is_no_checkpoint_of_a_run_is_wrong_usage(which: str) -> None:
    with pytest.raises(typer.BadParameter, match="run-83@15"):
        _split(which)
