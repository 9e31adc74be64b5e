"""The dashboard and the alert rules ask for measures that there are."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from workers.measures import Measures
from workers.telemetry import seldom
from workers.waiting import QUERIES

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
ALERTS = (DEPLOY / "alerts.yaml").read_text()
SUFFIXES = {"s": "_seconds", "By": "_bytes"}


def names() -> set[str]:
    """The measures as Prometheus names them."""
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    meter = provider.get_meter("test")
    measures = Measures(meter)
    found = set()
    for each in vars(measures).values():
        name = each.name.replace(".", "_") + SUFFIXES.get(each.unit, "")
        if type(each).__name__.endswith("Histogram"):
            found |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")}
        else:
            found.add(f"{name}_total")
    return found | {"perdure_runs_waiting"}


def expressions() -> Iterator[str]:
    for panel in json.loads((DEPLOY / "grafana" / "perdure.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from re.findall(r"expr: (?:>-\n)?((?:.|\n)+?)\n +for:", ALERTS)


def test_dashboard_and_alerts_use_measures_that_exist() -> None:
    used = set()
    for text in expressions():
        used |= set(re.findall(r"\b(?:perdure|gen_ai)_\w+(?=[{\[)])", re.sub(r"by \(.*?\)|\{.*?\}", "[", text)))
        used |= set(re.findall(r"\b(?:perdure|gen_ai)_\w+(?=\{)", text))
    assert len(used) > 12
    assert used - names() == set()


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
