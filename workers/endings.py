"""What is said of an execution that has ended, held back until the service has taken its end.

A run that ends, or rolls over, just as a message comes for it does not end: the service sends the task back, and the
code runs once more. Whether it does is seen when the run is put out of the cache.
"""

from collections import defaultdict
from collections.abc import Callable

from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation
from temporalio.worker._workflow_instance import WorkflowInstance

NOT_TAKEN = (RemoveFromCache.EvictionReason.UNHANDLED_COMMAND, RemoveFromCache.EvictionReason.TASK_NOT_FOUND)
_HELD: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)


def hold(run_id: str, say: Callable[[], None]) -> None:
    """Keeps what is to be said of an execution, whose code has just come to its end."""
    _HELD[run_id].append(say)


def settle(run_id: str, *, taken: bool) -> None:
    """Says it, or forgets it where the end was not taken."""
    for say in _HELD.pop(run_id, ()):
        if taken:
            say()


def settling(instance: WorkflowInstance) -> WorkflowInstance:
    """The same instance, which settles what is held of it when it is put out of the cache."""
    activate = instance.activate

    def activated(act: WorkflowActivation):  # type: ignore[no-untyped-def]  # the SDK's own
        done = activate(act)
        for job in act.jobs:
            if job.HasField("remove_from_cache"):
                settle(act.run_id, taken=job.remove_from_cache.reason not in NOT_TAKEN)
        return done

    setattr(instance, "activate", activated)  # noqa: B010, the instance's own, not its class's
    return instance
