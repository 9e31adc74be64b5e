"""The activity `bundle.upgrade`: may the run go on under that version of its bundle, and with which terms.

All of it is decided when the message comes, and pinned: nothing is left to decide when the next session begins.
"""

from temporalio import activity

from activities.errors import BundleConflict, BundleUnavailable, InvalidInput, UnknownBundle
from activities.manifest import Manifest
from activities.migrations import Body, way
from activities.opening import composed, starter, terms_of, tighter
from activities.world import World
from workflows.catalog import UPGRADE
from workflows.lineage import Chosen
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
        if request.waiting is not None and request.bundle == f"{opening.bundle.name}@{opening.bundle.version}":
            return Upgrade(opening=opening)
        try:
            bundle, manifest = await self._world.bundles.look(request.bundle, self._world.specs)
        except (UnknownBundle, BundleConflict, InvalidInput, BundleUnavailable) as error:
            return Upgrade(refused=error.message)
        if bundle.digest == opening.bundle.digest and request.waiting is not None:
            return Upgrade(opening=opening)
        if bundle.digest == opening.bundle.digest:
            return Upgrade(refused=f"the run is on {bundle.name}@{bundle.version} already")
        before = await self._world.bundles.manifest(opening.bundle.digest)
        try:
            migrated(self._world, before, manifest, None)
        except ValueError as error:
            return Upgrade(refused=str(error))
        try:
            bundle, manifest = await self._world.bundles.pin(request.bundle, self._world.specs)
        except (UnknownBundle, BundleConflict, InvalidInput, BundleUnavailable) as error:  # it has changed just now
            return Upgrade(refused=error.message)
        return Upgrade(opening=await self._opening(opening, before, bundle, manifest))

    async def _opening(self, opening: Opening, before: Manifest, bundle: BundleRef, manifest: Manifest) -> Opening:
        """What the start of the run chose stays; the rest is as the other version has it."""
        new, terms = manifest.file, terms_of(manifest)
        chosen = opening.chosen or _guessed(opening, before)
        return opening.model_copy(
            update={
                **terms,
                "bundle": bundle,
                "versions": manifest.versions(bundle.digest, self._world.build_id),
                "limits": tighter(new.budget, chosen.limits),
                "budget_wait": new.budget.wait if chosen.wait is None else chosen.wait,
                "repeat": chosen.repeat or new.effects.repeat,
                "requester": opening.requester or (composed(await starter()) if terms["distinct"] else None),
            }
        )


def _guessed(opening: Opening, before: Manifest) -> Chosen:
    """What the start chose, as far as it differs from what the bundle said."""
    old = before.file
    limits = opening.limits.model_dump(exclude_none=True)
    return Chosen(
        limits=Limits(**{name: limit for name, limit in limits.items() if limit != getattr(old.budget, name)}),
        wait=None if opening.budget_wait == old.budget.wait else opening.budget_wait,
        repeat=None if opening.repeat == old.effects.repeat else opening.repeat,
    )


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
