"""One trace for each run: every step once, one root, no span without its parent, and the tokens of the result."""

import json
import statistics
import sys
import threading
from collections import Counter
from functools import partial

import pytest
from temporalio.client import Client

from tests.integration.collector import Collector, Mood, collector
from tests.integration.kit import Stack, call, calls, kill, pending, say, until
from tests.integration.traced import Seen, check_whole, in_memory, options
from workers.steps import Event, Step
from workers.telemetry import Telemetry


class Fails:
    """Drops the connection of the first requests for one turn."""

    def __init__(self, turn: int, times: int) -> None:
        self.turn, self.left = turn, times

    def __call__(self, name: str, index: int) -> None:
        if index == self.turn and self.left:
            self.left -= 1
            raise ConnectionAbortedError("as a bad network does")


@pytest.mark.parametrize("cached", [1000, 0])
async def test_a_run_with_parallel_tools_an_approval_a_model_retry_and_a_rollover_is_one_whole_trace(
    stack: Stack, client: Client, telemetry: Telemetry, cached: int
) -> None:
    turn = calls(
        ("list_files", {"path": "."}), ("search_files", {"pattern": "x"}), ("write_file", {"path": "a", "content": "A"})
    )
    stack.script("traced", turn, say("done"))
    stack.bundle("traced", ["list_files", "search_files", "write_file"])
    stack.serve_model(on_turn=Fails(turn=1, times=3))
    seen: list[Event] = []
    async with stack.worker(max_cached_workflows=cached, **options(telemetry, seen)):
        run = await stack.start({"goal": "be traced", "bundle": "traced"})
        handle = client.get_workflow_handle(run)
        code = (await pending(handle))[0]["code"]
        first = (await handle.describe()).run_id
        await handle.signal("rollover", {"by": "ann"})

        async def rolled() -> bool:
            return (await handle.describe()).run_id != first

        await until(rolled, 60, "the rollover")
        await handle.execute_update("approve", {"code": code, "by": "ann"})
        result = await handle.result()
    spans = in_memory()
    check_whole(spans, result)
    names = Counter(span.name for span in spans)
    assert names == {
        "run.open": 1,
        "invoke_agent traced": 2,
        "chat traced": 3,
        "execute_tool list_files": 1,
        "execute_tool search_files": 1,
        "execute_tool write_file": 1,
        "wait approval": 1,
        "run.close": 1,
    }
    wanted = {f"perdure.version.{name}": version for name, version in result["versions"].items() if version}
    assert {"perdure.version.prompt", "perdure.version.prompt_digest", "perdure.version.bundle_digest"} < set(wanted)
    for span in spans:
        if not (span.failed or span.name.startswith("wait") or span.name == "run.close"):
            assert {k: v for k, v in span.attributes.items() if k.startswith("perdure.version.")} == wanted, span.name
    root = next(span for span in spans if not span.parent)
    assert root.attributes["perdure.status"] == "rolled_over"
    second = next(span for span in spans if span.parent == root.id and span.name.startswith("invoke_agent"))
    attempts = [span for span in spans if span.name.startswith("chat") and span.parent == second.id]
    assert [span.failed for span in sorted(attempts, key=lambda span: span.attributes["perdure.attempt"])] == [
        True,
        False,
    ]
    assert "perdure.turn" in attempts[0].attributes
    assert {span.attributes["gen_ai.request.model"] for span in spans if span.name.startswith("chat")} == {"traced"}
    lines = Counter(event.line().split(" (")[0] for event in seen if isinstance(event, Step))
    assert max(lines.values()) == 1, "a step was told twice"
    assert not any(value == "A" for span in spans for value in span.attributes.values()), "content left unasked"


def said(sink: Collector, turns: int) -> bool:
    return len([span for span in sink.spans if span.name.startswith("chat")]) >= turns


@pytest.mark.all
async def test_two_kills_leave_one_whole_trace_over_three_workers(stack: Stack, client: Client) -> None:
    stack.script("killed", *(call("list_files", f"step {n}", path=".") for n in range(3)), say("done"))
    stack.bundle("killed", ["list_files"])
    held = {turn: threading.Event() for turn in (1, 2)}
    gone = {turn: threading.Event() for turn in (1, 2)}

    def hold(name: str, index: int) -> None:
        if index in held and not held[index].is_set():
            held[index].set()
            gone[index].wait(60)

    stack.serve_model(on_turn=hold)
    with collector() as sink:
        worker = stack.start_worker(**sink.environment)
        run = await stack.start({"goal": "go on", "bundle": "killed"})
        for turn in held:
            await until(held[turn].is_set, 120, f"turn {turn}")
            await until(partial(said, sink, turn), 60, f"{turn} spans of turns")
            kill(worker)
            gone[turn].set()
            worker = stack.start_worker(**sink.environment)
        result = await client.get_workflow_handle(run).result()
        await until(lambda: any(span.name == "invoke_agent killed" for span in sink.spans), 60, "the root")
        await until(lambda: any(span.name == "run.close" for span in sink.spans), 60, "the end")
        spans = [
            Seen(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                {each.key: each.value.int_value or each.value.string_value for each in span.attributes},
                span.status.code == 2,
            )
            for span in sink.spans
        ]
        check_whole(spans, result)
        reckoned = json.loads((await stack.shell(f"perdure estimate {run} --per-month 10 --json")).stdout)
        assert (reckoned["runs"], reckoned["crashes"]) == (1, 2)
        assert reckoned["lost_seconds_per_month"] == pytest.approx(10 * 2 * reckoned["mean_seconds"] / 2)
        told = [
            ids["perdure.turn"] for text, ids in sink.logs if " model.turn attempt" in text and "failed" not in text
        ]
        assert told == [1, 2, 3, 4]
        await until(lambda: sink.metrics.get("perdure.runs.ended") == 1, 30, "the measures")
        assert sink.metrics["perdure.checkpoints"] >= 1
        assert {
            "gen_ai.client.token.usage",
            "gen_ai.client.operation.duration",
            "perdure.resumes",
        } <= sink.metrics.keys()


@pytest.mark.all
@pytest.mark.parametrize("mood", ["hangs", "refuses"])
async def test_a_bad_collector_holds_up_neither_the_run_nor_the_end_of_the_worker(
    stack: Stack, client: Client, mood: Mood
) -> None:
    stack.script("sunk", *(call("list_files", f"step {n}", path=".") for n in range(5)), say("done"))
    stack.bundle("sunk", ["list_files"])
    stack.serve_model()
    with collector(mood) as sink:
        worker = stack.start_worker(**sink.environment, PERDURE_GRACE="20")
        run = await stack.start({"goal": "go on", "bundle": "sunk"})
        result = await client.get_workflow_handle(run).result()
        assert (result["status"], result["turns"]) == ("completed", 6)
        await until(lambda: sink.asked, 30, "telemetry")
        worker.terminate()
        await until(lambda: worker.poll() is not None, 30, "the end of the worker")
        assert worker.returncode == 0
        log = (stack.folder / "worker-0.log").read_text()
        assert "stopped" in log, "it ended in good order, not at its deadline"
        assert log.count("Failed to export") <= 6


async def test_without_the_variables_nothing_of_telemetry_is_imported(stack: Stack) -> None:
    lines = (
        "from workers.telemetry import start_telemetry, wanted; import scripts.cli, sys; "
        "assert start_telemetry({}).signals == (); "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]; "
        "all = {'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x'}; "
        "assert wanted({**all, 'OTEL_LOGS_EXPORTER': 'none'}) == ('TRACES', 'METRICS'); "
        "assert wanted({**all, 'OTEL_SDK_DISABLED': 'true'}) == ()"
    )
    done = await stack.shell(f'{sys.executable} -c "{lines}"')
    assert done.returncode == 0, done.stderr


@pytest.mark.all
async def test_run_times_with_a_bad_collector_are_those_without_telemetry(stack: Stack, client: Client) -> None:
    """Paired: workers without telemetry and with each bad collector take turns on the same machine."""
    stack.script("paired", *(call("list_files", f"step {n}", path=".") for n in range(30)), say("done"))
    stack.bundle("paired", ["list_files"])
    stack.serve_model()
    times: dict[str, list[float]] = {"none": [], "hangs": [], "refuses": []}
    with collector("hangs") as hangs, collector("refuses") as refuses:
        environments = {"none": {}, "hangs": hangs.environment, "refuses": refuses.environment}
        for _ in range(3):
            for mood, environment in environments.items():
                worker = stack.start_worker(**environment)
                for number in range(3):
                    run = await stack.start({"goal": "go on", "bundle": "paired"})
                    await client.get_workflow_handle(run).result()
                    found = await client.get_workflow_handle(run).describe()
                    assert found.close_time is not None
                    if number:  # the first warms the worker up
                        times[mood].append((found.close_time - found.start_time).total_seconds())
                kill(worker)
    middles = {mood: statistics.median(each) for mood, each in times.items()}
    sys.stderr.write(f"\nseconds of 31 turns: {times}, medians {middles}\n")
    assert max(middles["hangs"], middles["refuses"]) < 1.3 * middles["none"] + 0.5
