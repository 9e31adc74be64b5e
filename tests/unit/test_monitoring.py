"""The dashboard and the alert rules ask for measures, and for labels of them, that a worker really sends."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, Sum

from workers.measures import Measures
from workers.steps import Ended, Event, Resumed, Step, Waited
from workers.telemetry import seldom
from workers.waiting import QUERIES, Waiting
from workflows.catalog import MODEL_TURN, TOOL_RUN
from workflows.records import Call, EffectRecord, Head, ToolAnswer, ToolRequest, Turn, Usage

NOW = datetime.now(UTC)

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
ALERTS = (DEPLOY / "alerts.yaml").read_text()
SUFFIXES = {"s": "_seconds", "By": "_bytes"}


def happened() -> Iterator[Event]:
    """One of everything that a worker tells of."""
    usage, head = (
        Usage(requests=1, input_tokens=3, output_tokens=2, cost_usd=0.1),
        Head(branch="b", sequence=1, sha256=""),
    )
    effect = EffectRecord.model_construct(operation_id="o", tool="t", effect="once", status="COMMITTED")
    call = Call(id="1.0", tool="t", decision="allow")
    request = ToolRequest(thread="w.1", branch="b", head=head, bundle="", call=call)
    turn = Turn(head=head, kind="answer", usage=usage, model="m", bytes=7)

    def step(activity: str, attempt: int = 1, **more: Any) -> Step:
        return Step(activity, "w", "r", attempt, began=0, ended=1, **more)

    yield step(MODEL_TURN.name, result=turn)
    yield step(MODEL_TURN.name, attempt=2, error=ValueError())
    yield step(MODEL_TURN.name, result=turn, notes={"recorded": True})
    yield step(TOOL_RUN.name, request=request, result=ToolAnswer(status="done", effect=effect))
    yield step(TOOL_RUN.name, request=request, result=ToolAnswer(status="review"))
    yield step(TOOL_RUN.name, request=request, result=ToolAnswer(status="error"))
    yield Waited("w", "r", "K7Q2", "approval", "approved", asked=NOW, decided=NOW)
    yield Ended("w", "r", "completed", began=NOW, ended=NOW, bundle="b@1")
    yield Resumed("w", "r")


def sent() -> dict[str, set[str]]:
    """The measures that a reader saw, as Prometheus names them, each with its labels."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    observe, waiting = Measures(meter), Waiting(cast("Any", None), meter)
    waiting._counts = {"all": 1}
    for event in happened():
        observe(event)
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, set[str]] = {}
    for metric in (each for top in data.resource_metrics for scope in top.scope_metrics for each in scope.metrics):
        name = metric.name.replace(".", "_") + SUFFIXES.get(metric.unit or "", "")
        labels = {key.replace(".", "_") for point in metric.data.data_points for key in point.attributes or ()}
        ends = {Histogram: ("_bucket", "_sum", "_count"), Sum: ("_total",)}.get(type(metric.data), ("",))
        found |= {f"{name}{end}": labels | ({"le"} if end == "_bucket" else set()) for end in ends}
    return found


def expressions() -> Iterator[str]:
    for panel in json.loads((DEPLOY / "grafana" / "perdure.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from re.findall(r"expr: (?:>-\n)?((?:.|\n)+?)\n +for:", ALERTS)


def test_dashboard_and_alerts_use_measures_and_labels_that_are_sent() -> None:
    measures, used = sent(), set()
    for text in expressions():
        plain = re.sub(r"by \(.*?\)|\{.*?\}|\[.*?\]", " ", text)
        here = set(re.findall(r"\b(?:perdure|gen_ai)_\w+", plain))
        assert here, text
        assert here - measures.keys() == set(), text
        labels = {one for group in re.findall(r"by \((.*?)\)", text) for one in group.split(", ")}
        labels |= {one for group in re.findall(r"\{(.*?)\}", text) for one in re.findall(r"(\w+)[!=]", group)}
        for name in here:
            assert labels - measures[name] == set(), text
        used |= here
    unused = {name.removesuffix("_bucket") for name in measures if not re.search("_(sum|count)$", name)} - {
        re.sub("_(bucket|sum|count)$", "", name) for name in used
    }
    assert unused == set(), "each measure has its place on the dashboard"


def test_what_is_shown_is_wired_in_the_containers() -> None:
    composed = (DEPLOY.parent / "docker-compose.yml").read_text()
    mounted = dict(re.findall(r"- \./(deploy/\S+):(\S+):ro", composed))
    assert {"deploy/alerts.yaml", "deploy/grafana/perdure.json", "deploy/grafana/dashboards.yaml"} <= mounted.keys()
    assert [name for name in mounted if not (DEPLOY.parent / name).is_file()] == []
    rules = re.findall(r"rule_files: \[(\S+)\]", (DEPLOY / "prometheus.yaml").read_text())
    assert rules == [mounted["deploy/alerts.yaml"]]
    folder = re.findall(r"path: (\S+)", (DEPLOY / "grafana" / "dashboards.yaml").read_text())
    assert folder == [str(Path(mounted["deploy/grafana/perdure.json"]).parent)]
    source = re.findall(r"uid: (\S+)", (DEPLOY / "grafana" / "provisioning.yaml").read_text())
    board = json.loads((DEPLOY / "grafana" / "perdure.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == set(source)


def test_alerts_ask_for_kinds_that_are_counted() -> None:
    kinds = {kind for text in expressions() for kind in re.findall(r'perdure_waits_for="(\w+)"', text)}
    assert kinds - {*QUERIES, "all"} == set()


def test_every_alert_says_what_to_do() -> None:
    assert ALERTS.count("- alert: ") == len(re.findall(r"remedy: perdure \w+", ALERTS)) == 7


def test_a_dead_collectors_complaints_are_said_once_in_a_while() -> None:
    keep = seldom(60)
    records = [
        logging.LogRecord("opentelemetry.x", logging.ERROR, "", 0, "Failed to export %s", (number,), None)
        for number in range(100)
    ]
    ours = logging.LogRecord("perdure.runs", logging.INFO, "", 0, "a step", (), None)
    assert [keep(record) for record in records].count(True) == 1
    assert keep(ours)
    assert keep(ours)
