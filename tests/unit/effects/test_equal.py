"""What an equal request of another start, or of a path that was left, means for a call."""

import json
from pathlib import Path
from typing import Any

import pytest

from activities.ancestry import Ancestry
from activities.effect_records import Claim, Outcome, Prepared
from activities.entries import Entries
from activities.judge import Bench, digest_request
from activities.ledger import Ledger
from activities.manifest import BundleFile, Manifest, Model, Rule
from activities.reply import RawCall
from activities.store import LocalStore
from activities.tools import load_tools
from activities.world import spec_of
from workflows.records import Call, Head, TurnRequest

EARLIER, NOW = "job.aaaaaaaaaaaa", "job.bbbbbbbbbbbb"
TOOLS = load_tools()
GIVEN: dict[str, dict[str, Any]] = {
    "write_file": {"path": "a.txt", "content": "A"},
    "notify": {"text": "hi"},
    "delegate": {"goal": "look", "bundle": "b"},
}


class Nights:
    """Two starts of one job. `made`: what the ledger holds; `judged`: what comes of the very same call now."""

    def __init__(self, folder: Path, tool: str) -> None:
        store = LocalStore(folder)
        self.tool, self.entries, self.ledger = tool, Entries(store), Ledger(store)
        self.ancestry = Ancestry(store, self.ledger, self.entries)
        found = TOOLS.get(tool)
        assert found is not None
        self.spec, self.final = spec_of(found), found.canonical(GIVEN[tool])

    async def made(self, thread: str) -> None:
        """The effect, COMMITTED."""
        operation, digest = f"{thread}:{self.tool}:1", digest_request(self.spec, self.final)
        await self.ancestry.note(thread, operation, digest)
        record = Prepared(
            operation_id=operation,
            tool=self.tool,
            effect="once",
            canonical_request={"tool": self.tool, "arguments": self.final},
            request_digest=digest,
            fingerprint=f"fx:v1:{'0' * 64}",
            idempotency_key=operation,
            key_valid=1.0,
            prepared_at="now",
            claim=Claim(attempt=1, token="t", lease=1.0, claimed_at="now"),
        )
        await self.ledger.prepare(thread, record)
        body = {"role": "tool", "call": "1.0", "tool": self.tool, "text": "did"}
        answer = await self.entries.put(thread, body, "did")
        await self.ledger.finish(
            thread,
            Outcome(operation_id=operation, status="COMMITTED", how="executed", answer=answer, committed_at="now"),
        )

    async def judged(self, repeat: Any, **more: Any) -> Call:
        file = BundleFile(model=[Model(model="m")], policy=[Rule(tool="*", decision="allow")])
        manifest = Manifest(
            name="b",
            version="1",
            folder_digest="f",
            prompt="",
            file=file,
            tools=[self.spec],
            digests={"policy": "p"},
        )
        head = Head(branch="b", sequence=1, sha256="0")
        request = TurnRequest(
            thread=NOW, branch="b", turn=2, head=head, new=[], bundle="x", repeat=repeat, depth_left=1, **more
        )
        bench = Bench(request, manifest, TOOLS, self.entries, self.ledger, self.ancestry, [])
        bench.abandoned = {each.operation_id: each for each in await self.ancestry.abandoned(request)}
        (found,) = await bench.judge([RawCall("c", self.tool, json.dumps(GIVEN[self.tool]))])
        return found.call


@pytest.mark.parametrize(
    ("tool", "repeat", "decision"),
    [
        ("write_file", "reuse", "allow"),  # that file is not in this start's workspace
        ("write_file", "ask", "allow"),
        ("notify", "reuse", "answered"),
        ("notify", "ask", "ask"),
        ("delegate", "reuse", "ask"),  # its record is the child's id, not the child's answer
    ],
)
async def test_an_equal_request_of_another_start_is_reused_only_where_its_result_is_here_too(
    tool: str, repeat: str, decision: str, tmp_path: Path
) -> None:
    nights = Nights(tmp_path, tool)
    await nights.made(EARLIER)
    assert (await nights.judged(repeat)).decision == decision


async def test_a_file_that_a_left_path_wrote_is_asked_about_and_never_taken_for_written(tmp_path: Path) -> None:
    nights = Nights(tmp_path, "write_file")
    await nights.made(NOW)
    left = f"{NOW}:write_file:1"
    call = await nights.judged("reuse", branched=True, abandoned=[left], numbers={"write_file": 1})
    assert (call.decision, left in str(call.reason)) == ("ask", True)
