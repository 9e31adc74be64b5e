"""Judging what a model sent: each tool call becomes a decision, recorded with the turn.

Nothing is repaired or guessed: a call that is not exactly right is answered with what is wrong with it, and not run.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from activities.ancestry import NOTHING_HAPPENED, Ancestry, line
from activities.canonical import canonical, digest, preview, short_arguments
from activities.context import Messages, tool_message
from activities.delegating import no_room, wants
from activities.entries import Entries
from activities.ledger import Ledger
from activities.manifest import Manifest, ToolSpec, tool_digest, wire_name
from activities.policy import limits_of, recovery_effect, rule_call
from activities.questions import unaskable
from activities.repeats import repeated
from activities.reply import RawCall
from activities.structured import FINAL_TOOL
from activities.tools import Registry
from workflows.keys import branched_id, operation_id
from workflows.lineage import DELEGATE
from workflows.messages import explain, loads
from workflows.records import Call, EffectRecord, TurnRequest

SHOWN_ARGUMENTS = 16_384
"""Bytes of arguments that a request to a person holds in full; larger ones are previews, and `perdure show` has all."""

MOST_CALLS = 128
"""Calls of one turn that are answered at all; what a model sends beyond them is dropped from its message."""


@dataclass
class Judged:
    """A call with its decision, as the workflow gets it, and as the context keeps it. `fault`: what is wrong with it,
    of the kinds that are counted."""

    call: Call
    message: dict[str, Any]
    fault: str | None = None


@dataclass
class Bench:
    """Judges the calls of one turn, in order. `context` is what the model had been told. `doubt`: why a person is asked
    about every effect, whatever policy says."""

    request: TurnRequest
    manifest: Manifest
    registry: Registry
    entries: Entries
    ledger: Ledger
    ancestry: Ancestry
    context: Messages
    cut: bool = False
    abandoned: dict[str, EffectRecord] = field(default_factory=dict)
    runs: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    doubt: str = ""

    async def judge(self, raw: Sequence[RawCall], settled: Collection[str] = ()) -> list[Judged]:
        """One decision for every call that is not settled."""
        self.numbers = dict(self.request.numbers)
        calls = [(index, call) for index, call in enumerate(raw[:MOST_CALLS]) if self._id(index) not in settled]
        return [await self._judge(index, call) for index, call in calls]

    def _id(self, index: int) -> str:
        return f"{self.request.turn}.{index}"

    async def _judge(self, index: int, raw: RawCall) -> Judged:
        call_id = self._id(index)
        spec = self.manifest.tool(raw.name)
        tool = spec.name if spec else preview(raw.name, 64) or "unnamed"
        try:
            arguments = parse_arguments(raw.arguments, self.cut, spec)
        except ValueError as error:
            message = _message(call_id, raw, {"malformed_arguments": preview(raw.arguments)})
            fault = "truncated" if self.cut else "malformed"
            return await self._answered(call_id, tool, message, f"{error}. The call was not run.", fault)
        message = _message(call_id, raw, arguments)
        if spec is None:
            return await self._answered(call_id, tool, message, self._no_such_tool(tool), "unknown_tool")
        try:
            final = final_arguments(self.registry, spec, arguments)
        except ValueError as error:
            return await self._answered(call_id, tool, message, f"{error}. The call was not run.", "unfit")
        if (refused := no_room(self.request, self.manifest, tool, index, self.numbers)) is not None:
            return await self._answered(call_id, tool, message, refused, "too_many")
        return await self._decide(call_id, spec, final, message)

    def _no_such_tool(self, tool: str) -> str:
        if tool == FINAL_TOOL:
            return f"Call {FINAL_TOOL} alone, once the other calls are answered. The call was not run."
        names = ", ".join(wire_name(each.name) for each in self.manifest.tools) or "none"
        return f"There is no tool {tool!r}. The tools are: {names}."

    async def _decide(self, call_id: str, spec: ToolSpec, final: dict[str, Any], message: dict[str, Any]) -> Judged:
        request_digest = digest_request(spec, final)
        if request_digest in self.request.denied:
            denied = "A person denied this very call. It was not run."
            return await self._answered(call_id, spec.name, message, denied, denied_by="person")
        effect = recovery_effect(self.manifest, spec, final)
        if effect != "read" and request_digest in self.seen:
            same = self.seen[request_digest]
            return await self._answered(call_id, spec.name, message, f"The same as call {same}. It was not run again.")
        self.seen[request_digest] = call_id
        if spec.question and (fault := await unaskable(final, SHOWN_ARGUMENTS)) is not None:
            return await self._answered(call_id, spec.name, message, f"{fault}. It was not asked.", "unfit")
        if self.cut and effect != "read":
            return await self._answered(call_id, spec.name, message, f"{_CUT}. The call was not run.", "truncated")
        decision, reason, timeout = self._rule(spec, final, message)
        if decision == "deny":
            denied = f"Denied by policy ({reason}). It was not run."
            return await self._answered(call_id, spec.name, message, denied, denied_by="policy")
        if self.request.calls_left is not None and self.runs >= self.request.calls_left:
            return await self._answered(call_id, spec.name, message, _SPENT)
        self.runs += 1
        asks = spec.question or decision == "ask"
        # A read that nobody is asked about has no record anywhere, so it needs no name in every turn of the history.
        operation = await self._operation(spec, effect, request_digest) if asks or effect != "read" else None
        if effect != "read" and operation is not None:
            past, reused = await self._past(spec, operation, request_digest)
            if reused is not None:
                self.numbers[spec.name] -= 1  # the run counts the calls that have a name; this one has none
                return await self._answered(call_id, spec.name, message, reused)
            await self.ancestry.note(self.request.thread, operation, request_digest)
            reason = "; ".join(part for part in (reason if asks else "", past) if part)
            asks = asks or bool(past)
        shown = short_arguments(final, SHOWN_ARGUMENTS if asks else 200)
        call = Call(
            id=call_id,
            tool=spec.name,
            decision="question" if spec.question else "ask" if asks else "allow",
            summary=summarize(spec.name, final),
            effect=effect,
            local=spec.local,
            **limits_of(self.registry, spec, final),
            ask_timeout=timeout if asks else None,
            reason=reason if asks else None,
            operation_id=operation,
            fingerprint=fingerprint(self.manifest, self.registry, spec, final, operation) if operation else None,
            request_digest=request_digest if operation else None,
            arguments=shown if isinstance(shown, dict) else None,
            arguments_preview=shown if isinstance(shown, str) else None,
            wants=wants(spec.name, final),
        )
        return Judged(call, message)

    def _rule(self, spec: ToolSpec, final: dict[str, Any], message: dict[str, Any]) -> tuple[str, str, float]:
        """What policy says; and a call that fails again and again asks a person, whatever it is."""
        decision, reason, timeout = ruling(self.manifest, self.registry, spec, final)
        if decision == "allow" and not spec.question:
            again = repeated(self.context, message["tool"], json.loads(message["arguments"]), self.manifest.file.limits)
            if again is not None:
                return "ask", again, timeout
        return decision, reason, timeout

    async def _operation(self, spec: ToolSpec, effect: str, request_digest: str) -> str:
        """The call's name: the run's own count. After a reset the path before it may have used that number: for the
        same request it is the same operation, unless that was refused or undone; for another one it is not."""
        number = self.numbers.get(spec.name, 0) + 1
        self.numbers[spec.name] = number
        name = operation_id(self.request.thread, spec.name, number)
        if not self.request.branched or effect == "read":
            return name
        found = await self.ledger.standing(self.request.thread, name)
        if found.prepared is None:
            return name
        if found.prepared.request_digest == request_digest and found.state not in NOTHING_HAPPENED:
            self.abandoned.pop(name, None)
            return name
        return branched_id(name, self.request.branch)

    async def _past(self, spec: ToolSpec, operation: str, request_digest: str) -> tuple[str, str | None]:
        """Why the past asks for a person (or nothing), and the recorded result where that is to be used again."""
        if await self.ledger.prepared(self.request.thread, operation) is not None:
            return "", None  # the same step again: the ledger has its result, or knows that it is in doubt
        said, tool = [self.doubt] if self.doubt else [], self.registry.get(spec.name)
        writes = tool is not None and tool.writes  # into this thread's own files: another one's are not here
        if earlier := await self.ancestry.equal(self.request, request_digest, self.abandoned, elsewhere=not writes):
            stands = self.request.repeat == "reuse" and not writes and spec.name != DELEGATE
            result = await self.ancestry.result(earlier) if stands else None
            if result is not None:
                made = f"{earlier.record.operation_id} at {earlier.record.committed_at}"
                return "", f"[not run again: the same request was made before, {made}. Its recorded result:]\n{result}"
            said.append(f"the very same request was made before: {line(earlier.record)}")
        if left := [effect for effect in self.abandoned.values() if effect.tool == spec.name]:
            said.append(f"a path that was left made {len(left)} effect(s) with this tool, the last: {line(left[-1])}")
        if earlier is None and not writes and (beside := await self.ancestry.beside(self.request, spec.name)):
            last = line(beside[-1])
            said.append(f"the fork's source made {len(beside)} with this tool that the fork does not know: {last}")
        return "; ".join(said), None

    async def _answered(
        self,
        call_id: str,
        tool: str,
        message: dict[str, Any],
        text: str,
        fault: str | None = None,
        denied_by: Literal["policy", "person"] | None = None,
    ) -> Judged:
        ref = await self.entries.put(self.request.thread, tool_message(call_id, tool, text), text)
        call = Call(id=call_id, tool=tool, decision="answered", answer=ref, reason=preview(text), denied_by=denied_by)
        return Judged(call, message, fault)


_SPENT = "The run's limit of tool calls is reached. The call was not run."
_CUT = "The output limit cut this call: send it again in smaller pieces"


def ruling(manifest: Manifest, registry: Registry, spec: ToolSpec, final: dict[str, Any]) -> tuple[str, str, float]:
    """What policy and the tool's own guard say of a call: decision, reason, and how long an ask waits in seconds."""
    found = rule_call(manifest, spec, final)
    tool = registry.get(spec.name)
    if found.decision == "allow" and tool is not None and tool.guard is not None:
        try:
            reason = tool.guard(final, manifest.file.options.get(spec.name, {}))
        except Exception as error:  # noqa: BLE001 - a tool's own code
            reason = f"its guard failed ({type(error).__name__})"
        if reason is not None:
            return "ask", reason, found.timeout
    return found.decision, found.reason, found.timeout


def parse_arguments(text: str, cut: bool = False, spec: ToolSpec | None = None) -> dict[str, Any]:
    """The arguments as an object. Nothing and `null` count as an empty one, except for a tool that requires some.
    Raises ValueError that says why not."""
    try:
        value = loads(text) if text.strip() else {}
        canonical(value)
    except ValueError as error:
        if cut:
            raise ValueError(_CUT) from None
        raise ValueError(f"The arguments are malformed ({_whole_characters(str(error))}): {preview(text)!r}") from None
    if value is None and not (spec is not None and spec.parameters.get("required")):
        return {}
    if not isinstance(value, dict):
        kind = "null" if value is None else type(value).__name__
        raise ValueError(f"The arguments must be a JSON object, not {kind}")
    return value


def _whole_characters(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def final_arguments(registry: Registry, spec: ToolSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool will get them, defaults filled in. Raises ValueError that names the field."""
    tool = registry.get(spec.name)
    if tool is None:
        raise ValueError(f"The tool {spec.name} is no longer available")
    try:
        return tool.canonical(arguments)
    except ValidationError as error:
        raise ValueError(f"The arguments do not fit: {explain(error)}") from None


def digest_request(spec: ToolSpec, final: dict[str, Any]) -> str:
    """Equal requests have equal ones, in whichever run and under whichever policy they are made."""
    return digest({"tool": spec.name, "schema": spec.digest, "arguments": final})


def fingerprint(manifest: Manifest, registry: Registry, spec: ToolSpec, final: dict[str, Any], operation: str) -> str:
    """What an approval is for: this tool as this worker has it, these final arguments, this policy, this operation, and
    no other."""
    tool = registry.get(spec.name)
    parts = {
        "tool": spec.name,
        "schema": spec.digest if tool is None else tool_digest(tool),
        "arguments": final,
        "policy": manifest.digests["policy"],
        "operation_id": operation,
    }
    return f"fx:v1:{digest(parts)}"


def summarize(tool: str, final: dict[str, Any]) -> str:
    """A line for the timeline: the tool and its first short argument."""
    first = next((str(value) for value in final.values() if isinstance(value, str | int) and str(value)), "")
    return preview(f"{tool} {re.sub(r'^https?://', '', first)}".strip(), 100)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _message(call_id: str, raw: RawCall, arguments: dict[str, Any]) -> dict[str, Any]:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", wire_name(raw.name))[:64] or "unnamed"
    return {"id": call_id, "provider_id": raw.provider_id, "tool": name, "arguments": _json(arguments)}
