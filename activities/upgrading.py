"""The activity `bundle.upgrade`: may the run go on under that version of its bundle, and with which terms.

All of it is decided when the message comes, and pinned: nothing is left to decide when the next session begins.
"""

from typing import Any

from temporalio import activity

from activities.errors import BundleConflict, InvalidInput, UnknownBundle
from activities.manifest import Manifest
from activities.migrations import Body, way
from activities.opening import starter, terms_of, tighter
from activities.world import World
from workflows.catalog import UPGRADE
from workflows.records import BundleRef, Limits, Opening
from workflows.upgrade_records import Upgrade, UpgradeRequest


class UpgradeActivities:
    """Looks at the version that a run is to move to."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=UPGRADE.name)
    async def upgrade(self, request: UpgradeRequest) -> Upgrade:
        """The opening under the other version, or a refusal in words."""
        opening = request.opening
        name = request.bundle.partition("@")[0]
        if name != opening.bundle.name:
            return Upgrade(
                refused=f"the run is one of {opening.bundle.name}: it can move to another version of that bundle, and "
                f"{name!r} is another bundle; fork the run for that"
            )
        try:
            bundle, manifest = await self._world.bundles.pin(request.bundle, self._world.specs)
        except (UnknownBundle, BundleConflict, InvalidInput) as error:
            return Upgrade(refused=error.message)
        if bundle.digest == opening.bundle.digest:
            return Upgrade(refused=f"the run is on {bundle.name}@{bundle.version} already")
        before = await self._world.bundles.manifest(opening.bundle.digest)
        try:
            migrated(self._world, before, manifest, None)
        except ValueError as error:
            return Upgrade(refused=str(error))
        return Upgrade(opening=await self._opening(opening, before, bundle, manifest))

    async def _opening(self, opening: Opening, before: Manifest, bundle: BundleRef, manifest: Manifest) -> Opening:
        """What the start of the run chose stays, as far as it can be told from what the bundle said; the rest is as the
        other version has it."""
        old, new = before.file, manifest.file
        terms = terms_of(manifest)
        chosen = {
            name: limit
            for name, limit in opening.limits.model_dump(exclude_none=True).items()
            if limit != getattr(old.budget, name)
        }
        return opening.model_copy(
            update={
                **terms,
                "bundle": bundle,
                "versions": manifest.versions(bundle.digest, self._world.build_id),
                "limits": tighter(new.budget, Limits(**chosen)),
                "budget_wait": _unless_chosen(opening.budget_wait, old.budget.wait, new.budget.wait),
                "repeat": _unless_chosen(opening.repeat, old.effects.repeat, new.effects.repeat),
                "requester": opening.requester or (await starter() if terms["distinct"] else None),
            }
        )


def _unless_chosen(now: Any, old: Any, new: Any) -> Any:
    return new if now == old else now


def migrated(world: World, before: Manifest, after: Manifest, state: Body | None) -> Body:
    """What a session hands over, as the other version's state schema has it; without a state it is only asked whether
    there is a way. Raises ValueError where there is none, or a step fails."""
    old, new = (each.versions("", "")["state_schema"] for each in (before, after))
    steps = way(world.registry.migrations, after.name, old, new)
    if steps is None:
        raise ValueError(
            f"{after.name}@{after.version} has state schema {new}, the run {old}, and no migration leads there: "
            f"declare @migration({after.name!r}, {old!r}, {new!r}) in a module of PERDURE_TOOLS"
        )
    body = state or {}
    for step in steps if state is not None else ():
        said = f"the migration of {step.bundle} from {step.before} to {step.after}"
        try:
            body = step({**body})
        except Exception as error:
            raise ValueError(f"{said} failed: {type(error).__name__}: {error}") from error
        if not isinstance(body, dict):
            raise ValueError(f"{said} returned no dict")
    return body
