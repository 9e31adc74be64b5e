"""What every test shares: the rule for the long ones."""

import os

import pytest

LONG = (
    "test_bad_forks",
    "test_bad_messages",
    "test_bad_starts",
    "test_batches",
    "test_children",
    "test_crash_matrix",
    "test_crashes_of_state",
    "test_deadlines",
    "test_deployments",
    "test_doctor",
    "test_forks",
    "test_looking_back",
    "test_model_calls",
    "test_model_limits",
    "test_model_server_faults",
    "test_notices",
    "test_past",
    "test_projects",
    "test_pending_commands",
    "test_rollover",
    "test_runs",
    "test_sessions",
    "test_slots",
    "test_steering",
    "test_store_down",
    "test_traces",
    "test_undoing",
    "test_upgrades",
    "test_worker_life",
    "test_workspace",
)
"""Modules whose tests wait for deadlines, restarts and leases, or try many of a kind: the first of each runs always,
the rest with --all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the long tests unless `./scripts/test --all` asked for them."""
    if os.environ.get("PERDURE_TEST_ALL") == "1":
        return
    skip = pytest.mark.skip(reason="a long one: ./scripts/test --all")
    seen: set[str] = set()
    for item in items:
        module = item.path.stem
        if item.get_closest_marker("all") or (module in LONG and module in seen):
            item.add_marker(skip)
        else:
            seen.add(module)
