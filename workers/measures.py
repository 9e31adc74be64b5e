"""Measures: what runs cost and how long things take. The names with `gen_ai.` are those of the semantic conventions."""

from collections.abc import Sequence

from opentelemetry.metrics import Histogram, Meter

from workers.steps import Ended, Event, Resumed, Step, Waited
from workflows.catalog import HANDOFF, MODEL_TURN, TOOL_READ, TOOL_RUN
from workflows.records import ToolAnswer, Turn

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
LONG = (1, 10, 60, 300, 900, 3600, 14400, 86400, 259200, 604800)


class Measures:
    """Observes by counting."""

    def __init__(self, meter: Meter) -> None:
        def times(name: str, what: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=buckets)

        self.chat = times("gen_ai.client.operation.duration", "Attempts at a model turn or a handoff")
        self.tool = times("gen_ai.execute_tool.duration", "Attempts at a tool call")
        self.agent = times("gen_ai.invoke_agent.duration", "Executions of runs", LONG)
        self.waits = times("perdure.wait.duration", "From a question to people to its decision", LONG)
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of a turn", explicit_bucket_boundaries_advisory=TOKENS
        )
        self.cost = meter.create_counter("perdure.cost", "{USD}", "What model turns cost")
        self.effects = meter.create_counter("perdure.effects", "{effect}", "Effects, by the state that they reached")
        self.reviews = meter.create_counter("perdure.reviews", "{review}", "Effects whose outcome a person must tell")
        self.checkpoints = meter.create_counter("perdure.checkpoints", "{checkpoint}", "Checkpoints saved")
        self.bytes = meter.create_counter("perdure.checkpoint.size", "By", "Bytes of the checkpoints saved")
        self.skipped = meter.create_counter("perdure.steps.skipped", "{step}", "Steps found done, and not done again")
        self.retries = meter.create_counter("perdure.attempts.repeated", "{attempt}", "Attempts after the first")
        self.resumes = meter.create_counter("perdure.resumes", "{resume}", "Runs rebuilt from history by a worker")
        self.runs = meter.create_counter("perdure.runs.ended", "{run}", "Executions of runs, by how they ended")

    def __call__(self, event: Event) -> None:
        """Counts what happened."""
        if isinstance(event, Step):
            self._step(event)
        elif isinstance(event, Resumed):
            self.resumes.add(1)
        elif isinstance(event, Waited):
            took = max(0.0, (event.decided - event.asked).total_seconds())
            self.waits.record(took, {"perdure.kind": event.kind, "perdure.outcome": event.outcome})
        elif isinstance(event, Ended):
            attributes = {"perdure.status": event.status, "gen_ai.agent.name": event.bundle.partition("@")[0]}
            self.runs.add(1, attributes)
            self.agent.record((event.ended - event.began).total_seconds(), attributes)

    def _step(self, step: Step) -> None:
        error = {"error.type": step.error_type} if step.error_type else {}
        if step.attempt > 1:
            self.retries.add(1, {"perdure.activity": step.activity})
        if step.recorded:
            self.skipped.add(1, {"perdure.activity": step.activity})
        if step.activity in (MODEL_TURN.name, HANDOFF.name):
            self._asked(step, error)
        elif step.activity in (TOOL_RUN.name, TOOL_READ.name):
            self._tool(step, error)

    def _asked(self, step: Step, error: dict[str, str]) -> None:
        turn = step.result if isinstance(step.result, Turn) else None
        what = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
        if step.model:
            what["gen_ai.request.model"] = step.model
        if turn is not None:
            what["gen_ai.response.model"] = turn.model
        self.chat.record(step.seconds, {**what, **error})
        if step.usage is None:
            return
        self.tokens.record(step.usage.input_tokens, {**what, "gen_ai.token.type": "input"})
        self.tokens.record(step.usage.output_tokens, {**what, "gen_ai.token.type": "output"})
        self.cost.add(step.usage.cost_usd, what)
        if turn is not None:
            self.checkpoints.add(1)
            self.bytes.add(turn.bytes)

    def _tool(self, step: Step, error: dict[str, str]) -> None:
        what = {"gen_ai.tool.name": step.tool or ""}
        self.tool.record(step.seconds, {**what, **error})
        answer = step.result
        if isinstance(answer, ToolAnswer) and answer.effect is not None and not step.recorded:
            self.effects.add(1, {**what, "perdure.effect.status": answer.effect.status})
        if isinstance(answer, ToolAnswer) and answer.status == "review":
            self.reviews.add(1, what)
