"""The OpenTelemetry SDK, set up. Imported only where telemetry is wanted; it reads the rest of OTEL_… by itself."""

import logging
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.contrib.opentelemetry import (
    OpenTelemetryPlugin,
    ReplaySafeLoggerProvider,
    ReplaySafeMeterProvider,
    ReplaySafeTracerProvider,
)

from workers.linking import ForkLinks
from workers.measures import Measures
from workers.telemetry import CONTENT, EXPORTERS, Telemetry
from workers.tracing import RunSpans, StepSpans
from workers.tracing_ids import Ids
from workers.waiting import Waiting


def start(signals: tuple[str, ...], environment: Mapping[str, str]) -> Telemetry:
    """Makes the providers for these signals the global ones."""
    told = Telemetry(signals)
    named = "service.name" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "") or environment.get("OTEL_SERVICE_NAME")
    resource = Resource.create({"service.version": _version(), **({} if named else {"service.name": "perdure"})})
    if "TRACES" in signals:
        trace_to(told, resource, BatchSpanProcessor(OTLPSpanExporter()), environment.get(CONTENT, "").lower() == "true")
    if "METRICS" in signals:
        meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
        metrics.set_meter_provider(ReplaySafeMeterProvider(meters))
        meter = meters.get_meter("perdure")  # observers are told things once; that a run was rebuilt, in its replay
        told.observers.append(Measures(meter))
        told.watches.append(lambda client: Waiting(client, meter).watch())
        told.closers.append(meters.shutdown)
    if "LOGS" in signals:
        loggers = LoggerProvider(resource)
        loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        _logs.set_logger_provider(ReplaySafeLoggerProvider(loggers))
        logging.getLogger().addHandler(OtlpHandler())
        told.closers.append(loggers.shutdown)
    return told


def trace_to(told: Telemetry, resource: Resource, processor: SpanProcessor, content: bool) -> None:
    """Traces through this processor."""
    ids = Ids()
    tracers = ReplaySafeTracerProvider(TracerProvider(resource=resource, id_generator=ids), ids)
    tracers.add_span_processor(processor)
    trace.set_tracer_provider(tracers)
    told.plugins.append(OpenTelemetryPlugin())
    told.interceptors += [RunSpans(), ForkLinks()]
    told.observers.append(StepSpans(content))
    told.closers.append(tracers.shutdown)


class OtlpHandler(logging.Handler):
    """Sends log records on, with the ids of what they are about."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hands a record to the exporter's queue."""
        if record.name.partition(".")[0] in EXPORTERS:  # sent on, a failure would feed on itself
            return
        ids = getattr(record, "ids", None)
        try:
            _logs.get_logger(record.name).emit(
                LogRecord(
                    timestamp=int(record.created * 1e9),
                    severity_text=record.levelname,
                    severity_number=_severity(record.levelno),
                    body=record.getMessage(),
                    attributes={f"perdure.{name}": value for name, value in ids.items()} if type(ids) is dict else {},
                )
            )
        except Exception:  # noqa: BLE001 - a wrong log call must not fail who makes it
            self.handleError(record)


def _severity(level: int) -> SeverityNumber:
    if level >= logging.ERROR:
        return SeverityNumber.ERROR
    if level >= logging.WARNING:
        return SeverityNumber.WARN
    return SeverityNumber.INFO if level >= logging.INFO else SeverityNumber.DEBUG


def _version() -> str:
    try:
        return version("perdure")
    except PackageNotFoundError:
        return "unknown"
