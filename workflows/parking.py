"""Why a run is parked, and what mends it."""

PARKS: dict[str, tuple[str, str]] = {
    "StoreUnavailable": ("store", "bring the object store back; the run goes on by itself"),
    "BundleUnavailable": ("bundle", "restore the bundle's manifest in the store; the run goes on by itself"),
    "CheckpointDamaged": (
        "store",
        "restore what is named from a backup of the store, or fork from a checkpoint before it",
    ),
    "WorkspaceUnavailable": (
        "workspace",
        "restore what is missing below files/ and entries/ of the thread in the store, or mend the worker's disk",
    ),
    "ContextFull": (
        "message",
        "send `handoff` to begin a new session, or raise [session] at in another bundle version",
    ),
    "IncompatiblePayload": ("release", "serve the run with a release that can read it, then send `resume`"),
    "NotIsolated": ("isolation", "install bubblewrap on the tool workers (`perdure doctor` tells), then send `resume`"),
    "RepositoryUnavailable": ("repository", "mend what the message names on the tool workers, then send `resume`"),
    "PlanRefused": ("message", "answer what `perdure pending` asks, or send `message` and then `resume`"),
    "GradeMissing": ("message", "decide by `accept` or `reject`, or send `resume` for another try"),
    "RateLimited": ("rate_limit", "nothing: the run wakes by itself; or send `resume` to try at once"),
}
"""Failures that park a run instead of ending it: what it then waits on, and the remedy."""
