"""What a project may be started with."""

from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from temporalio.common import RawValue

from activities.errors import InvalidInput
from activities.opening import Totals
from activities.starting import read_start
from workflows.messages import Name
from workflows.project_records import ProjectRequest

EXAMPLE = """temporal workflow start --type ProjectRun --task-queue perdure --input '{"brief": "what to build"}'"""
BundleName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class RoleNames(BaseModel):
    """The bundles, as `name` or `name@version`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    initializer: BundleName = "initializer"
    coder: BundleName = "coder"
    evaluator: BundleName = "evaluator"


class ProjectFork(BaseModel):
    """A fork: the project, and the number of the boundary between its tasks. `branch`: of which path, after a reset."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    workflow_id: Annotated[str, StringConstraints(min_length=1, max_length=1200)]
    boundary: Annotated[int, Field(ge=1, le=10**6)]
    branch: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}$")] | None = None


class ProjectInput(BaseModel):
    """`repository`: a git repository on the worker's machine, as a path or a `file://` URL."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    brief: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] | None = None
    fork: ProjectFork | None = None
    repository: Annotated[str, StringConstraints(min_length=1, max_length=4000)] | None = None
    bundles: RoleNames | None = None
    budget: Totals = Totals()
    by: Name | None = None


def read_project(request: ProjectRequest, payload: RawValue) -> ProjectInput:
    """The input, or InvalidInput that names the field."""
    return read_start(request, payload, ProjectInput, "brief", _check, EXAMPLE)


def _check(wanted: ProjectInput) -> None:
    if (wanted.brief is None) == (wanted.fork is None):
        raise ValueError("give the field `brief` or `fork`, one of them; a fork is told what to do by `message`")


def local_path(repository: str) -> Path:
    """The folder that is meant. Raises InvalidInput for anything that is not on this machine."""
    parts = urlsplit(repository)
    text = unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else repository
    if not text.startswith("/"):
        raise InvalidInput("field `repository`: an absolute path or a file:/// URL of a local folder is wanted")
    return Path(text)
