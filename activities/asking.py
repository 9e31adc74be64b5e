"""The activity `message.judge`: what a person sent with a decision, held against what was asked."""

from temporalio import activity

from activities.context import tool_message
from activities.delegating import wants
from activities.judge import digest_request, final_arguments, fingerprint, ruling, summarize
from activities.policy import limits_of, recovery_effect
from activities.questions import no_answer
from activities.schemas import misfit
from activities.tools.bodies import to_text
from activities.world import World
from workflows.catalog import JUDGE
from workflows.side_records import JudgeRequest, Verdict


class AskActivities:
    """Judges edited arguments and answers to questions."""

    def __init__(self, world: World) -> None:
        self._world = world

    @activity.defn(name=JUDGE.name)
    async def judge(self, request: JudgeRequest) -> Verdict:
        """A verdict; what does not fit is refused with a reason, and the request stays open."""
        if request.kind == "answer":
            return await self._answer(request)
        return await self._arguments(request)

    async def _arguments(self, request: JudgeRequest) -> Verdict:
        """Edited arguments must fit the tool, and must not be what policy denies. They become a new fingerprint."""
        manifest = await self._world.bundles.manifest(request.bundle)
        spec = manifest.tool(request.call.tool)
        if spec is None or not isinstance(request.value, dict):
            return Verdict(ok=False, reason="the arguments must be a JSON object for a tool of this bundle")
        # A model's "5" for a number is read as 5. What a person writes runs as written, or not at all.
        if (fault := misfit(request.value, spec.parameters)) is not None:
            return Verdict(ok=False, reason=f"the arguments do not fit: {fault}")
        try:
            final = final_arguments(self._world.registry, spec, request.value)
            asked = digest_request(spec, final)
        except ValueError as error:
            return Verdict(ok=False, reason=str(error))
        decision, reason, _ = ruling(manifest, self._world.registry, spec, final)
        if decision == "deny":
            return Verdict(ok=False, reason=f"denied by policy ({reason})")
        body = await self._world.entries.put(request.thread, {"arguments": final}, summarize(spec.name, final))
        if request.call.operation_id is not None:
            await self._world.ancestry.note(request.thread, request.call.operation_id, asked)
        return Verdict(
            ok=True,
            body=body,
            fingerprint=fingerprint(manifest, self._world.registry, spec, final, request.call.operation_id or ""),
            request_digest=asked,
            summary=summarize(spec.name, final),
            timeout=limits_of(self._world.registry, spec, final)["timeout"],
            wants=wants(spec.name, final),
            effect=recovery_effect(manifest, spec, final),
        )

    async def _answer(self, request: JudgeRequest) -> Verdict:
        asked = request.call.arguments or {}
        if (reason := await no_answer(asked, request.value)) is not None:
            return Verdict(ok=False, reason=reason)
        text, _ = to_text(request.value)
        body = tool_message(request.call.id, request.call.tool, text)
        return Verdict(ok=True, body=await self._world.entries.put(request.thread, body, text))
