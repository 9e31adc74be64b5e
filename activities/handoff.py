"""The activity `session.handoff`: what one session leaves for the next.

The facts are the system's: what the ledger, the workspace and the run itself have on record. The judgement is the
model's, asked for as JSON of a schema. The record is put if absent before the activity returns: a retried attempt finds
it, and the model is not asked again.
"""

import asyncio
import json
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.canonical import digest, preview
from activities.checkpoints import now_iso
from activities.closing import artifacts
from activities.context import Messages, check, user_message
from activities.errors import BundleUnavailable, CheckpointConflict, CheckpointDamaged, Failure
from activities.handoff_record import fitting
from activities.heartbeats import heartbeats
from activities.judgement import HANDOFF, SUMMARY, Judgement, judge_session
from activities.listing import git_head, heads_of
from activities.manifest import Manifest
from activities.noting import note
from activities.patience import crashed, failed
from activities.sessions import begin, beginning, estimate, read_handoff, session_mark, split_middle
from activities.trail import Trail
from activities.upgrading import migrated
from activities.world import World
from workflows.catalog import HANDOFF as COMMAND
from workflows.keys import checkpoint_key, folder
from workflows.records import Ref, Usage
from workflows.session_records import Handoff, HandoffRequest

LISTED = 50
SHOWN_TEXT = 1000
SHOWN = ("session", "at", "by", "facts", "judgement", "upgrade")


class HandoffActivities:
    """Hands sessions over."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=COMMAND.name)
    async def hand_off(self, request: HandoffRequest) -> Handoff:
        """Makes the artifact and the beginning of the next session. Raises the model's failures, CheckpointDamaged and
        CheckpointConflict."""
        try:
            async with heartbeats():
                return await self._hand_off(request)
        except (ApplicationError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - it must end some time, with a name
            raise await crashed(self._world.store, request, error) from None

    async def _hand_off(self, request: HandoffRequest) -> Handoff:
        refs, new = await self._world.contexts.store_items(request.thread, request.new)
        asked = digest([request.head.sha256, [ref.sha256 for ref in refs], request.base, request.session])
        key = f"{folder(request.thread)}/handoffs/{request.branch}/{request.session:04d}.json"
        found = await self._find(key, asked, request)
        if found is not None:
            note(recorded=True)
            return found
        return await self._make(request, refs, new, key, asked)

    async def _find(self, key: str, asked: str, request: HandoffRequest) -> Handoff | None:
        record = await read_handoff(self._world.store, key)
        if record is None:
            return None
        if record["request_digest"] != asked:
            raise CheckpointConflict(f"handoff {key} belongs to another request; neither is taken")
        opening = fitting(record, key).opening if request.takes_opening else None
        return Handoff(
            base=record["base"],
            key=key,
            sha256=record["sha256"],
            mode=record["mode"],
            artifact=shown({name: record[name] for name in SHOWN if name in record}),
            usage=Usage.model_validate(record["usage"]),
            upgraded=record.get("upgrade", {}).get("digest"),
            opening=opening,
        )

    async def _make(self, request: HandoffRequest, refs: list[Ref], new: Messages, key: str, asked: str) -> Handoff:
        world, thread = self._world, request.thread
        manifest = await world.bundles.manifest(request.bundle.digest)
        note(versions=manifest.versions(request.bundle.digest, world.build_id))
        begun = None if request.base is None else await beginning(world.entries, thread, request.base)
        before = await world.contexts.load(thread, request.head) if begun is None else begun.messages
        context = [*before, *new]
        check(context)
        first, middle, tail = split_middle(context)
        compact = manifest.file.session.boundary == "compact" and bool(middle)
        facts = await self._facts(request, manifest, context)
        if compact:
            judgement, usage = await self._judge(request, manifest, [*first, *middle], SUMMARY)
            judgement = await self._as_next(request, manifest, judgement)
            messages = [*first, user_message(_summary(request, middle, tail, judgement)), *tail]
        else:
            judgement, usage = await self._judge(request, manifest, context, HANDOFF)
            judgement = await self._as_next(request, manifest, judgement)
            people = [message for message in new if message["role"] == "user" and "by" in message]
            messages = [*first, user_message(_handed_over(request, facts, judgement)), *people]
        check(messages)
        record = {
            "schema": 1,
            "thread": thread,
            "branch": request.branch,
            "session": request.session,
            "at": now_iso(),
            "by": request.by,
            "mode": "compact" if compact else "reset",
            "request_digest": asked,
            "new": [ref.sha256 for ref in refs],
            "base": await begin(world.entries, thread, messages),
            "facts": facts,
            "judgement": judgement,
            "usage": usage.model_dump(mode="json"),
            "versions": manifest.versions(request.bundle.digest, world.build_id),
        }
        if request.upgrade is not None:
            record["upgrade"] = {"from": f"{manifest.name}@{manifest.version}", **request.upgrade.model_dump()}
        if request.opening is not None:
            record["opening"] = request.opening.model_dump(mode="json")
        record["sha256"] = digest(record)
        await world.store.put_new(key, json.dumps(record, ensure_ascii=False).encode("utf-8"))
        made = await self._find(key, asked, request)  # another attempt may have been first
        if made is None:
            raise CheckpointDamaged(f"handoff {key} was there and is gone")
        return made

    async def _judge(
        self, request: HandoffRequest, manifest: Manifest, context: Messages, wanted: Judgement
    ) -> tuple[dict[str, Any], Usage]:
        """The model's judgement within what is left of the limits, with the trail of the attempts before."""
        used, limits = request.used, request.limits
        left: dict[str, float] = {
            name: limits[name] - used.get(name, 0) for name in ("tokens", "cost_usd") if name in limits
        }
        trail = await Trail.load(self._world.store, request)
        try:
            return await judge_session(self._world, manifest, context, wanted, trail, left)
        except Failure as error:
            ends = failed(error, trail, manifest.file.model[0].unavailable_after)
            await trail.save(self._world.store, request)
            raise ends from None

    async def _as_next(self, request: HandoffRequest, manifest: Manifest, judgement: dict[str, Any]) -> dict[str, Any]:
        """The judgement as the bundle of the next session has its state."""
        if request.upgrade is None:
            return judgement
        after = await self._world.bundles.manifest(request.upgrade.digest)
        try:
            return migrated(self._world, manifest, after, judgement)
        except ValueError as error:
            raise BundleUnavailable(f"the move to {after.name}@{after.version}: {error}: mend it and deploy") from None

    async def _facts(self, request: HandoffRequest, manifest: Manifest, context: Messages) -> dict[str, Any]:
        """What is so, whatever the model thinks."""
        world, thread = self._world, request.thread
        listing = await world.workspaces.listing(thread, request.files)
        heads = {path: await world.workspaces.content(thread, listing[path]) for path in heads_of(listing)}
        effects = await world.ledger.everything(thread)
        files = artifacts(thread, listing)
        return {
            "session": request.session,
            "turns": request.turns,
            "checkpoint": {
                "key": checkpoint_key(thread, request.head.branch, request.head.sequence),
                "sha256": request.head.sha256,
            },
            "effects": [
                {
                    "operation_id": effect.operation_id,
                    "status": effect.status,
                    "request": effect.canonical_request,
                    "external_id": effect.external_id,
                    "at": effect.committed_at,
                }
                for effect in effects[-LISTED:]
            ],
            "pending": [{name: each.get(name) for name in ("code", "kind", "question")} for each in request.pending],
            "budget": {"limit": request.limits, "used": request.used},
            "artifacts": [{name: file[name] for name in ("path", "sha256", "bytes")} for file in files[-LISTED:]],
            "total": {"effects": len(effects), "artifacts": len(files)},
            "git_head": git_head(heads),
            "context": {"tokens": estimate(context, manifest), "estimated": True},
        }


def _mark(request: HandoffRequest, turns: int) -> str:
    return session_mark(request.session + 1, turns)


def _handed_over(request: HandoffRequest, facts: dict[str, Any], judgement: dict[str, Any]) -> str:
    """The message with which a new session begins, after the goal."""
    return (
        f"{_mark(request, request.head.sequence)}"
        "You go on with the task above in a new session. You do not see what was said before; this is what is left of "
        "it.\n\nFacts, as the system has them on record (what is COMMITTED has happened: do not do it again):\n"
        f"{json.dumps(facts, ensure_ascii=False)}\n\n"
        f"What the session before left for you, in its own judgement:\n{json.dumps(judgement, ensure_ascii=False)}"
    )


def _summary(request: HandoffRequest, middle: Messages, tail: Messages, judgement: dict[str, Any]) -> str:
    """The message that stands for the middle. The turns in the tail are not part of it."""
    kept = sum(message["role"] == "assistant" for message in tail)
    text = judgement.get("summary") or json.dumps(judgement, ensure_ascii=False)
    return f"{_mark(request, request.head.sequence - kept)}{text}"


def shown(value: Any) -> Any:
    """The same with long texts and lists cut: what history and the query hold."""
    if isinstance(value, str):
        return preview(value, SHOWN_TEXT)
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    return [shown(each) for each in value[-20:]] if isinstance(value, list) else value
