"""Rollover: continue-as-new with the whole state, when the history of one execution is long enough.

It happens between two turns or while the run waits, never while a tool or a message handler runs. What the model is
told does not change by one byte.
"""

from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from workflows.messages import decode_json
from workflows.receiving import MANY_UPDATES
from workflows.state import WORKFLOW_VERSION, RunState

S = TypeVar("S", bound=BaseModel)

CARRIED = "perdure_state"
"""The key under which continue-as-new carries the state in the input."""


class RollOver(Exception):
    """Leaves the loop to continue as new."""


class Rollover:
    """`rolling`: a rollover is due. `updates`: how many this execution took. `stays`: its version cannot be left."""

    state: RunState
    rolling: bool
    updates: int
    size_at_start: int
    stays: bool

    def start_counting(self) -> None:
        """At the start of an execution, before anything else."""
        self.rolling, self.updates, self.stays = False, 0, False
        self.size_at_start = workflow.info().get_current_history_size()

    def look_at_history(self) -> None:
        """Decides whether the rollover is due: asked at every turn and after every message."""
        self.rolling = self.rolling or self._is_due()

    def _is_due(self) -> bool:
        info, opening = workflow.info(), self.state.opening
        if opening is None:
            return False
        return (
            info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= opening.history_events
            or info.get_current_history_size() - self.size_at_start >= opening.history_bytes
            or self.updates >= MANY_UPDATES
            or (info.is_target_worker_deployment_version_changed() and not self.stays)
        )

    def arrive(self) -> None:
        """After a rollover: one that did not bring the run to another version is not tried again for that reason."""
        self.stays = self.state.rolled_from is not None and self.state.rolled_from == version_now()
        self.state.rolled_from = None
        if self.state.opening is not None:
            self.state.opening = self.state.opening.model_copy(update={"versions": self.versions_now()})

    def versions_now(self) -> dict[str, str]:
        """The versions of the bundle, and of the code that runs the workflow now."""
        version = workflow.info().get_current_deployment_version()
        # an unversioned worker has a build id of the SDK's own making, which means nothing to anybody
        build = {} if version is None else {"build_id": version.build_id if version.deployment_name else ""}
        return {**self.state.opened.versions, "workflow": WORKFLOW_VERSION, **build}

    def continue_as_new(self) -> NoReturn:
        """Ends this execution; the next one goes on with the state, on the current version."""
        self.state.busy_since, self.state.rolled_from = None, version_now()
        continue_with(self.state)


def version_now() -> str | None:
    """The worker deployment version that runs the workflow now; None for an unversioned worker."""
    version = workflow.info().get_current_deployment_version()
    return None if version is None else version.to_canonical_string()


def continue_with(state: BaseModel) -> NoReturn:
    """Continues as new with the whole state, on the current version where the worker has one."""
    workflow.continue_as_new(
        {CARRIED: state.model_dump(mode="json", exclude_defaults=True)},
        initial_versioning_behavior=None
        if version_now() is None
        else workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE,
    )


def carried(value: RawValue | None, kind: type[S]) -> S | None:
    """The state that continue-as-new carried; None when the input is an ordinary one. Raises ValueError that names the
    field of a state that does not fit."""
    if not workflow.info().continued_run_id:
        return None
    try:
        body = decode_json(value)
    except ValueError:
        return None
    if not isinstance(body, dict) or CARRIED not in body:
        return None
    return kind.model_validate(body[CARRIED])


def misfit(error: ValidationError) -> ApplicationError:
    """The failure of a run whose carried state this release cannot read."""
    fault = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in fault["loc"])
    message = f"the state that was carried over does not fit {error.title}: field `{field}`: {fault['msg']}"
    return ApplicationError(message, type="IncompatiblePayload", non_retryable=True)
