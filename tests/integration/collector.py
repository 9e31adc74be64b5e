"""A collector of telemetry for the tests: takes OTLP over HTTP, and can be made a bad one."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Mood = Literal["good", "hangs", "refuses"]


class Collector(ThreadingHTTPServer):
    """What came, by signal. `mood`: `hangs` takes requests and never answers, `refuses` answers 400."""

    daemon_threads = True

    def __init__(self, mood: Mood = "good") -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.mood = mood
        self.asked = 0
        self.see: Callable[[bytes], object] = lambda _: None
        """Told of each body."""
        self.spans: list[Span] = []
        self.metrics: dict[str, float] = {}
        self.logs: list[tuple[str, dict[str, Any]]] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that send telemetry here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BLRP_SCHEDULE_DELAY": "200",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        }

    def take(self, path: str, body: bytes) -> None:
        """Books one request."""
        self.asked += 1
        self.see(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/logs":
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                for record in (record for scope in logs.scope_logs for record in scope.log_records):
                    found = {each.key: each.value.string_value or each.value.int_value for each in record.attributes}
                    self.logs.append((record.body.string_value, found))
        else:
            for metrics in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in metrics.scope_metrics for metric in scope.metrics):
                    self.metrics[metric.name] = sum(
                        [point.as_int or point.as_double for point in metric.sum.data_points]
                        + [point.sum for point in metric.histogram.data_points]
                    )


class _Take(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.mood == "hangs":
            self.server.asked += 1
            time.sleep(60)
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.server.mood == "good":
            self.server.take(self.path, body)
        else:
            self.server.asked += 1
        self.send_response(200 if self.server.mood == "good" else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, the name is given
        """Say nothing."""


@contextmanager
def collector(mood: Mood = "good") -> Iterator[Collector]:
    """A collector that listens."""
    with Collector(mood) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        yield server
        server.shutdown()
