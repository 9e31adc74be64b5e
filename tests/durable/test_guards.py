"""The guards bite: a change that breaks runs which are alive fails in three separate ways, each with its cause."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.checkouts import checkout
from tests.integration.kit import plain_environment

GUARDS = {
    "replay": "tests/durable/test_replay.py::test_all_histories_replay_in_this_warm_process",
    "commands": "tests/durable/test_replay.py::test_runs_still_issue_the_recorded_commands[plain]",
    "schemas": "tests/durable/test_schemas.py::test_records_of_the_last_release_can_still_be_read[Turn]",
}


def said(top: Path) -> dict[str, str]:
    """What each guard says of a checkout; empty where it passes."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *GUARDS.values()],
        cwd=top,
        env={**plain_environment(), "PYTHONPATH": str(top), "PATH": os.environ["PATH"]},
        text=True,
        capture_output=True,
        timeout=300,
    )
    parts = re.split(r"^_+ (test_\S+) _+$", done.stdout, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {name: texts.get(path.partition("::")[2], "") for name, path in GUARDS.items()}


def test_a_breaking_change_fails_the_replay_the_command_baseline_and_the_schema_gate(tmp_path: Path) -> None:
    top = checkout(
        tmp_path,
        ("workflows/catalog.py", 'name="model.turn"', 'name="model.step"'),
        ("workflows/records.py", '    model: str = ""\n', '    model_name: str = ""\n'),
    )
    found = said(top)
    assert "does not replay" in found["replay"]
    assert "model.step" in found["replay"]
    assert "activity model.step" in found["commands"]
    assert "Turn.model is gone" in found["schemas"]
    for name in ("replay", "commands"):
        assert "workflow.patched(" in found[name], "it teaches the pattern"
    assert "add a new field with a default" in found["schemas"]


@pytest.mark.all
@pytest.mark.parametrize(
    ("file", "condition", "history"),
    [
        ("gates.py", "workflow.patched(PARKED_MISFITS)", "unreadable_failed"),
        ("sessions.py", "workflow.patched(COUNTED_HANDOFFS)", "uncounted"),
        ("tool_calls.py", "workflow.patched(LEFT_LOOKED_UP)", "undone_late"),
        ("handlers.py", "workflow.patched(ALL_OF_A_BRANCH)", "undone_late"),
        ("agent_run.py", "workflow.patched(UNDONE_FIRST)", "undone_late"),
    ],
)
def test_without_its_patch_a_change_fails_the_replay(file: str, condition: str, history: str, tmp_path: Path) -> None:
    """A patch that is taken away: the history of a run of the old way tells. `unreadable_failed` is one that failed;
    `undone_late` one that a reset sent back, which asked without a look, undid all, and ended before that was done."""
    found = said(checkout(tmp_path, (f"workflows/{file}", condition, f"({condition} or True)")))
    assert f"{history}-1.json does not replay" in found["replay"]
    assert (found["commands"], found["schemas"]) == ("", "")
