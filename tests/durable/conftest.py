"""The fixtures of the integration tests."""

from tests.integration.conftest import client, server, stack

__all__ = ["client", "server", "stack"]
