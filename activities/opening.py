"""The activity `run.open`: the input is read, the bundle pinned, the first checkpoint written."""

import json
import re
import unicodedata
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints
from temporalio import activity
from temporalio.common import RawValue

from activities.canonical import digest, preview
from activities.checkpoints import Checkpoint, Inputs, now_iso
from activities.durations import Seconds
from activities.edits import INPUTS
from activities.fork_input import ForkInput, Nothing, pinned
from activities.handing import hand_over
from activities.manifest import Caps, Manifest
from activities.schemas import check_schema
from activities.starting import read_start
from activities.world import World
from workflows.catalog import OPEN
from workflows.keys import thread_name
from workflows.lineage import Chosen, Parent
from workflows.messages import Amount, Count, Name
from workflows.records import BundleRef, Files, Limits, Opening, OpenRequest, Repeat, Workspace

EXAMPLE = """temporal workflow start --type AgentRun --task-queue perdure --input '{"goal": "what to do"}'"""


class Totals(Limits):
    """Limits that may only be tightened, and how long a stopped run waits for more."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    turns: Count | None = None
    tokens: Count | None = None
    tool_calls: Count | None = None
    cost_usd: Amount | None = None
    seconds: Amount | None = None
    wait: Seconds | None = None


class Lineage(Parent):
    """Whom a run works for: given by the tool `delegate`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Given(Workspace):
    """The workspace that a run begins with: what another run left. A project gives it to its sessions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


TrailerName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z-]{0,30}$")]
TrailerValue = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]


class RunInput(BaseModel):
    """What a run may be started with. `trailers`: what its commits say at their end, as `Task: parse-dates`.
    `bundle_digest`: the manifest that the run's parent has pinned for it, whatever the folder of `bundle` holds now."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    goal: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] | None = None
    bundle: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    inputs: dict[str, Any] | None = None
    budget: Totals = Totals()
    interactive: bool = False
    output_schema: dict[str, Any] | None = None
    repeat: Repeat | None = None
    by: Name | None = None
    fork: ForkInput | None = None
    parent: Lineage | None = None
    workspace: Given | None = None
    trailers: dict[TrailerName, TrailerValue] = {}
    bundle_digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None


class OpenActivities:
    """Opens runs."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=OPEN.name)
    async def open(self, request: OpenRequest, payload: RawValue) -> Opening:
        """Raises InvalidInput, UnknownBundle or BundleConflict; StoreUnavailable where a retry may help."""
        wanted = read_input(request, payload)
        thread, past = thread_name(request.workflow_id, request.first_execution_run_id), Nothing
        if wanted.fork is not None:
            past = await pinned(self._world, thread, wanted.fork)
        if past.bundle is not None and wanted.bundle is None:
            bundle, manifest = past.bundle, await self._world.bundles.manifest(past.bundle.digest)
        elif wanted.bundle_digest is not None:
            manifest = await self._world.bundles.manifest(wanted.bundle_digest)
            bundle = BundleRef(name=manifest.name, version=manifest.version, digest=wanted.bundle_digest)
        else:
            bundle, manifest = await self._world.bundles.pin(wanted.bundle or "assistant", self._world.specs)
        approvals = manifest.file.approvals
        versions = manifest.versions(bundle.digest, self._world.build_id)
        files = Files() if wanted.workspace is None else await hand_over(self._world, wanted.workspace, thread)
        head = past.record or await self._first_checkpoint(thread, request.branch, wanted, versions, files)
        return Opening(
            thread=thread,
            goal=preview(wanted.goal or ""),
            bundle=bundle,
            versions=versions,
            limits=tighter(manifest.file.budget, wanted.budget),
            chosen=chosen(wanted),
            head=head.head(),
            bytes=head.size,
            at=head.timestamp,
            budget_wait=manifest.file.budget.wait if wanted.budget.wait is None else wanted.budget.wait,
            interactive=wanted.interactive,
            structured=wanted.output_schema is not None,
            **terms_of(manifest),
            search_attributes=self._world.has_search_attributes,
            shows_digest=self._world.shows_digest,
            repeat=wanted.repeat or manifest.file.effects.repeat,
            requester=composed(wanted.by or (await starter() if approvals.distinct_from_requester else "")) or None,
            ancestry=past.ancestry,
            parent=wanted.parent,
            depth_left=depth_left(manifest, wanted.parent),
            files=files,
            trailers=dict(wanted.trailers),
        )

    async def _first_checkpoint(
        self, thread: str, branch: str, wanted: RunInput, versions: dict[str, str], files: Files
    ) -> Checkpoint:
        body: dict[str, Any] = {"role": "user", "text": first_message(wanted)}
        if wanted.output_schema is not None:
            body["output_schema"] = wanted.output_schema
        entry = await self._world.entries.put(thread, body, wanted.goal or "")
        return await self._world.checkpoints.save(
            Checkpoint(
                thread=thread,
                branch=branch,
                sequence=0,
                parent=None,
                step_id="open",
                inputs=Inputs(
                    entries=[entry.sha256],
                    request_digest=digest([entry.sha256, versions["bundle_digest"]]),
                    files=files,
                ),
                versions=versions,
                timestamp=now_iso(),
            )
        )


def composed(name: str) -> str:
    """A name in the one spelling that messages have it in."""
    return unicodedata.normalize("NFC", name)


async def starter() -> str:
    """Who started this run, as the client that did it says of itself (`temporal --identity`, else its user)."""
    info = activity.info()
    handle = activity.client().get_workflow_handle(str(info.workflow_id), run_id=info.workflow_run_id)
    async for event in handle.fetch_history_events(page_size=1):
        return person_of(event.workflow_execution_started_event_attributes.identity)
    return ""


def person_of(identity: str) -> str:
    """The name in what a client says of itself: the CLI says `temporal-cli:alice@laptop` unless told otherwise."""
    found = re.fullmatch(r"temporal-cli:(.+)@[^@]*", identity)
    return found[1] if found else identity


def read_input(request: OpenRequest, payload: RawValue) -> RunInput:
    """The input, or InvalidInput that names the field."""
    return read_start(request, payload, RunInput, "goal", check_fields, EXAMPLE)


def check_fields(wanted: RunInput) -> None:
    """Raises ValueError for what each field alone does not tell."""
    check_combination(wanted)
    if wanted.output_schema is not None:
        check_output_schema(wanted.output_schema)


def check_combination(wanted: RunInput) -> None:
    """Raises ValueError for fields that do not go together."""
    if wanted.fork is None:
        if wanted.goal is None:
            raise ValueError("field `goal` is missing")
        return
    for name in ("inputs", "output_schema", "workspace"):
        if getattr(wanted, name) is not None:
            raise ValueError(f"field `{name}` cannot be given with `fork`: edit message 0 instead")


def check_output_schema(schema: dict[str, Any]) -> None:
    """Raises ValueError that names the field."""
    try:
        check_schema(schema)
    except ValueError as error:
        raise ValueError(f"field `output_schema`: {error}") from None


def chosen(wanted: RunInput) -> Chosen:
    """What the start said itself of what a bundle says too."""
    limits = Limits(**wanted.budget.model_dump(include=set(Limits.model_fields)))
    return Chosen(limits=limits, wait=wanted.budget.wait, repeat=wanted.repeat)


def terms_of(manifest: Manifest) -> dict[str, Any]:
    """What the bundle alone says of a run, as fields of its opening."""
    file = manifest.file
    return {
        "max_denials": file.limits.denials,
        "max_bad_turns": file.limits.bad_turns,
        "history_events": file.limits.history_events,
        "history_bytes": file.limits.history_bytes,
        "max_faults": caps_of(file.limits),
        "on_end": file.effects.on_end,
        "approvers": [composed(each) for each in file.approvals.approvers],
        "distinct": file.approvals.distinct_from_requester,
        "notices": file.approvals.times(),
    }


def depth_left(manifest: Manifest, parent: Parent | None) -> int:
    """How many levels of sub-agents may be below a run: the bundle's limit, and no more than its parent has left."""
    own = manifest.file.limits.depth
    return own if parent is None else min(own, parent.depth_left)


def caps_of(limits: Caps) -> dict[str, int]:
    """For how many turns in a row each kind of fault is borne; `any` stands for those that are not named."""
    return {"truncated": limits.truncations, "schema": limits.repairs + 1, "any": limits.faulty_turns}


def tighter(bundle: Limits, wanted: Limits) -> Limits:
    """The smaller of both, limit by limit."""

    def least(name: str) -> Any:
        values = [v for v in (getattr(bundle, name), getattr(wanted, name)) if v is not None]
        return min(values) if values else None

    return Limits(**{name: least(name) for name in Limits.model_fields})


def first_message(wanted: RunInput) -> str:
    """The goal, and the inputs as JSON below it."""
    if not wanted.inputs:
        return wanted.goal or ""
    return f"{wanted.goal}{INPUTS}{json.dumps(wanted.inputs, ensure_ascii=False, indent=1)}"
