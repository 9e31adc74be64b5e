"""The records of a move to another version of the bundle; promises, as those in `records`."""

from workflows.records import BundleRef, Opening, Record


class UpgradeRequest(Record):
    """Input of `bundle.upgrade`: the version that is wanted, and what the run was opened with. `waiting`: an upgrade
    that waits for the next session; it can be taken back by naming the version that the run is on."""

    bundle: str
    opening: Opening
    waiting: BundleRef | None = None


class Upgrade(Record):
    """Output of `bundle.upgrade`: the opening as it is under the other version, or why there is no way to it; the one
    that the run has, where the upgrade that waits is taken back."""

    opening: Opening | None = None
    refused: str | None = None


class Upgrading(Record):
    """An upgrade that waits for the next session. `by`: who wanted it."""

    opening: Opening
    by: str
