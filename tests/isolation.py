"""For tests that need commands to be isolated: skipped, loudly, where this machine cannot do it."""

import pytest

from activities.tools.sandbox import problem

isolation = pytest.mark.skipif(
    problem() is not None,
    reason=f"NOT CHECKED: isolation of commands, since {problem()} (Debian package bubblewrap)",
)
