"""Histories of every released version of the workflow code replay with today's code."""

import os
import subprocess
import sys

import pytest
from temporalio.client import Client

from tests.durable.corpus import GUARD, HISTORIES, PATCH, PLAYS, commands, histories, read, replay_all
from tests.integration.kit import ROOT, Stack
from workflows.state import WORKFLOW_VERSION

PATHS = sorted(HISTORIES.glob("*/*.json"))


def test_every_path_has_a_history_of_this_version() -> None:
    """There may be others: of what today's code would do in another way (`unreadable_failed`)."""
    here = {path.stem.rpartition("-")[0] for path in PATHS if path.parent.name == WORKFLOW_VERSION}
    assert here >= set(PLAYS), "record them with `python -m tests.durable.record histories`"


async def test_all_histories_replay_in_this_warm_process() -> None:
    await replay_all(PATHS)


async def test_all_histories_replay_inside_the_sandbox() -> None:
    """Workers run without it; here it refuses what a replay could not repeat, on every path that has a history."""
    await replay_all(PATHS, GUARD)


@pytest.mark.parametrize("seed", ["0", "1"])
def test_all_histories_replay_in_a_fresh_process(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.durable.record", "replay"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", ["plain", "decided"])
async def test_runs_still_issue_the_recorded_commands(stack: Stack, client: Client, name: str) -> None:
    await PLAYS[name](stack, client)
    [now] = await histories(client, name)
    before = read(HISTORIES / WORKFLOW_VERSION / f"{name}-1.json")
    assert commands(now) == commands(before), PATCH
