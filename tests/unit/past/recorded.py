"""Recorded runs for tests, judged and published as a run does it, without a server and without a model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from activities.ancestry import Ancestry
from activities.bundles import Bundles
from activities.canonical import digest
from activities.checkpoints import Checkpoint, Checkpoints, Inputs, Outputs
from activities.context import Contexts, tool_message, user_message
from activities.effect_records import Claim, Outcome, Prepared
from activities.entries import Entries
from activities.judge import Bench
from activities.ledger import Ledger
from activities.manifest import ToolSpec
from activities.reading import read_reply
from activities.reply import RawCall, Reply
from activities.segments import Segments
from activities.sessions import beginning
from activities.store import LocalStore
from activities.tools import load_tools
from activities.world import spec_of
from workflows.keys import checkpoint_key
from workflows.records import BundleRef, Head, Item, Ref, TurnRequest, Usage
from workflows.records import Call as JudgedCall

THREAD = "run-83.9c41d07be2f5"
BRANCH = "0a1b2c3d"
Call = tuple[str, dict[str, Any]]


class Recorded:
    """Writes a run below `folder`. A new object with another branch goes on from where `head` is set to."""

    def __init__(self, folder: Path, thread: str = THREAD, branch: str = BRANCH) -> None:
        self.folder, self.thread, self.branch = folder, thread, branch
        (folder / "bundles").mkdir(parents=True, exist_ok=True)
        self.store = LocalStore(folder / "store")
        self.entries, self.registry = Entries(self.store), load_tools()
        self.checkpoints = Checkpoints(self.store)
        self.contexts = Contexts(self.checkpoints, self.entries, Segments(self.store, self.checkpoints, self.entries))
        self.bundles = Bundles(self.store, [folder / "bundles"])
        self.ledger = Ledger(self.store)
        self.ancestry = Ancestry(self.store, self.ledger, self.entries)
        self.numbers: dict[str, int] = {}
        self.new: list[Ref] = []
        self.head: Head | None = None
        self.ref: BundleRef | None = None
        self.seconds = 0
        self.ancestry_of: list[str] = []
        self.branched = False
        self.base: str | None = None

    def environment(self) -> dict[str, str]:
        """What the commands read."""
        return {
            "PERDURE_STORE": (self.folder / "store").as_uri(),
            "PERDURE_BUNDLES": str(self.folder / "bundles"),
            "TEMPORAL_ADDRESS": "127.0.0.1:1",
        }

    def bundle(self, version: str, tools: Sequence[str], prompt: str = "You are an agent.\n", **tables: Any) -> str:
        """Writes a version of the bundle `shop`."""
        folder = self.folder / "bundles" / "shop" / version
        folder.mkdir(parents=True)
        tables.setdefault("model", [{"model": "m", "price": {"input": 1.0, "output": 2.0}}])
        (folder / "bundle.toml").write_text(tomli_w.dumps({"tools": list(tools), **tables}))
        (folder / "prompt.md").write_text(prompt)
        return f"shop@{version}"

    async def open(self, bundle: str, goal: str = "do it") -> None:
        """Checkpoint 0."""
        self.ref, manifest = await self.bundles.pin(bundle, self._specs)
        entry = await self.entries.put(self.thread, user_message(goal), goal)
        self.versions = manifest.versions(self.ref.digest, "")
        saved = await self.checkpoints.save(self._record(0, None, [entry], "open"))
        self.head = saved.head()

    async def turn(self, *calls: Call, text: str = "", answers: Sequence[str] = (), tokens: int = 100) -> Checkpoint:
        """A turn with these calls, which are then answered; without calls, the final answer."""
        assert self.head is not None
        assert self.ref is not None
        number, manifest = self.head.sequence + 1, await self.bundles.manifest(self.ref.digest)
        bodies = await self.entries.get_all(self.thread, [ref.sha256 for ref in self.new])
        begun = None if self.base is None else await beginning(self.entries, self.thread, self.base)
        before = await self.contexts.load(self.thread, self.head) if begun is None else begun.messages
        context, entries = [*before, *bodies], [*(begun.refs if begun else []), *self.new]
        request = TurnRequest(
            thread=self.thread,
            branch=self.branch,
            turn=number,
            head=self.head,
            new=[Item(ref=ref) for ref in self.new],
            bundle=self.ref.digest,
            numbers=self.numbers,
            ancestry=self.ancestry_of,
            branched=self.branched,
            depth_left=1,
        )
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=10)
        raw = [RawCall(f"c{number}-{index}", tool, json.dumps(value)) for index, (tool, value) in enumerate(calls)]
        reply = Reply(text=text or ("" if calls else "done"), calls=raw, usage=usage, model="m")
        bench = Bench(request, manifest, self.registry, self.entries, self.ledger, self.ancestry, context)
        turn, message = await read_reply(reply, bench, context, Usage())
        self.numbers = bench.numbers or self.numbers
        record = self._record(number, self.head, entries, f"turn-{number}").model_copy(
            update={
                "outputs": Outputs(message=message, turn=turn.model_dump(mode="json", exclude_defaults=True)),
                "effects": [call.fingerprint for call in turn.calls if call.fingerprint],
                "usage": usage,
                "base": begun is not None,
            }
        )
        saved = await self.contexts.commit(record, self.head, context, sum(ref.bytes for ref in self.new))
        self.head, self.new, self.base = saved.head(), [], None
        for index, call in enumerate(turn.calls):
            said = answers[index] if index < len(answers) else f"result {call.id}"
            body = tool_message(call.id, call.tool, said)
            self.new.append(call.answer or await self.entries.put(self.thread, body, said))
        return saved

    async def commit(self, call: JudgedCall, by: str | None = None, **more: Any) -> None:
        """What a call of the last turn leaves in the ledger when it has run: its answer is the one that was given."""
        assert call.operation_id is not None
        at = f"2026-11-29T16:00:00.{len(await self.ledger.names(self.thread)):03d}+00:00"
        prepared = Prepared(
            operation_id=call.operation_id,
            tool=call.tool,
            effect="once",
            canonical_request={"tool": call.tool, "arguments": call.arguments},
            request_digest=call.request_digest or "",
            fingerprint=call.fingerprint or "",
            idempotency_key=call.operation_id,
            key_valid=86_400.0,
            approved_by=by,
            prepared_at=at,
            claim=Claim(attempt=1, token="t", claimed_at=at, lease=1.0),
            call=call.id,
        ).model_copy(update=more)
        await self.ledger.prepare(self.thread, prepared)
        index = int(call.id.rpartition(".")[2])
        answer = self.new[index] if index < len(self.new) else Ref(sha256="0" * 64, bytes=1, preview="sent")
        outcome = Outcome(
            operation_id=prepared.operation_id, status="COMMITTED", how="executed", answer=answer, committed_at=at
        )
        await self.ledger.finish(self.thread, outcome)

    def _specs(self, globs: Sequence[str]) -> list[ToolSpec]:
        return [spec_of(tool) for tool in self.registry.match(globs)]

    def _record(self, number: int, parent: Head | None, new: Sequence[Ref], step: str) -> Checkpoint:
        link = None
        if parent is not None:
            link = {"key": checkpoint_key(self.thread, parent.branch, parent.sequence), "sha256": parent.sha256}
        self.seconds += 1
        return Checkpoint(
            thread=self.thread,
            branch=self.branch,
            sequence=number,
            parent=link,
            step_id=step,
            inputs=Inputs(entries=[ref.sha256 for ref in new], request_digest=digest([self.branch, number])),
            versions=self.versions,
            timestamp=f"2026-11-29T16:{self.seconds // 60:02d}:{self.seconds % 60:02d}.000+00:00",
        )
