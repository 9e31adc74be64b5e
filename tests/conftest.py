"""What every test shares: the rule for the long ones."""

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `all` unless `./scripts/test --all` asked for them."""
    if os.environ.get("PERDURE_TEST_ALL") == "1":
        return
    skip = pytest.mark.skip(reason="a long one: ./scripts/test --all")
    for item in items:
        if item.get_closest_marker("all"):
            item.add_marker(skip)
