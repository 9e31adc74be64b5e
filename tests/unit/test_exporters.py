"""Which signals the OTEL_… variables ask for."""

import logging

import pytest

from workers.telemetry import SIGNALS, start_telemetry, wanted

HERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
OTHERS = ("METRICS", "LOGS")


@pytest.mark.parametrize(
    ("exporters", "traces"),
    [
        ("otlp", True),
        ("otlp,console", True),
        ("console, otlp", True),
        ("OTLP", True),
        (" otlp ", True),
        ("", True),
        (" , ", True),
        ("none", False),
        ("None", False),
        ("console", False),
        ("console,zipkin", False),
    ],
)
def test_exporters_are_a_list_in_any_case(exporters: str, traces: bool) -> None:
    asked = wanted({**HERE, "OTEL_TRACES_EXPORTER": exporters})
    assert asked == (SIGNALS if traces else OTHERS)
    assert wanted({"OTEL_TRACES_EXPORTER": exporters}) == (("TRACES",) if traces and exporters.strip(" ,") else ())


def test_an_exporter_that_is_not_there_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert start_telemetry({"OTEL_TRACES_EXPORTER": "console,Zipkin", "OTEL_LOGS_EXPORTER": "none"}).signals == ()
    assert caplog.messages == ["OTEL_TRACES_EXPORTER: only otlp is there, not console, zipkin"]
