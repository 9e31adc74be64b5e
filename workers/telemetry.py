"""Telemetry by the standard OTEL_… variables, over OTLP. Without them nothing of it is even imported.

A collector that is dead, slow or wrong costs telemetry and nothing else: everything is handed to queues of their own
threads, which drop what does not fit, and the way out waits for them two seconds at most.
"""

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import Interceptor

from workers.steps import Observer

FLUSH_SECONDS = 2.0
SIGNALS = ("TRACES", "METRICS", "LOGS")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EXPORTERS = ("opentelemetry", "urllib3", "requests")
"""Whose log records are about telemetry itself."""
_QUIET = 60.0
_LOG = logging.getLogger(__name__)


@dataclass
class Telemetry:
    """What is switched on: plugins for the client; interceptors, observers and watches for the worker."""

    signals: tuple[str, ...] = ()
    plugins: list[SimplePlugin] = field(default_factory=list)
    interceptors: list[Interceptor] = field(default_factory=list)
    observers: list[Observer] = field(default_factory=list)
    watches: list[Callable[[Client], Coroutine[Any, Any, None]]] = field(default_factory=list)
    closers: list[Callable[[], Any]] = field(default_factory=list)

    def close(self) -> None:
        """Sends what is left, for as long as FLUSH_SECONDS."""
        threads = [threading.Thread(target=closer, daemon=True) for closer in self.closers]
        for thread in threads:
            thread.start()
        end = time.monotonic() + FLUSH_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The signals that the variables ask for, out of TRACES, METRICS and LOGS."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ()
    everything = bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"))

    def asked(signal: str) -> bool:
        named = _exporters(environment, signal)
        here = everything or bool(environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))
        return "otlp" in named or (not named and here)

    return tuple(signal for signal in SIGNALS if asked(signal))


def ignored(environment: Mapping[str, str]) -> list[str]:
    """The variables with exporters that are not there, each in words."""
    found = {f"OTEL_{signal}_EXPORTER": _exporters(environment, signal) - {"otlp", "none"} for signal in SIGNALS}
    return [f"{name}: only otlp is there, not {', '.join(sorted(named))}" for name, named in found.items() if named]


def _exporters(environment: Mapping[str, str], signal: str) -> set[str]:
    listed = environment.get(f"OTEL_{signal}_EXPORTER", "").lower().split(",")
    return {name.strip() for name in listed} - {""}


def start_telemetry(environment: Mapping[str, str]) -> Telemetry:
    """Switches on what the variables ask for. Call it once, before the client is made."""
    signals = wanted(environment)
    for said in ignored(environment):
        _LOG.warning("%s", said)
    if not signals:
        return Telemetry()
    from workers.exporting import start

    for handler in logging.getLogger().handlers:
        handler.addFilter(seldom())
    return start(signals, environment)


def seldom(quiet: float = _QUIET) -> Callable[[logging.LogRecord], bool]:
    """A filter that lets the same complaint of the exporters through once in `quiet` seconds: a dead collector must
    not fill the log."""
    last: dict[tuple[str, str], float] = {}

    def keep(record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in EXPORTERS:
            return True
        now, key = time.monotonic(), (record.name, str(record.msg))
        if now - last.get(key, -quiet) < quiet:
            return False
        last[key] = now
        return True

    return keep
