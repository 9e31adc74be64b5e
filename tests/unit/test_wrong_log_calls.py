"""A log call that is wrong, in a tool or a library, fails nobody, and hides what it must."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from workers.exporting import OtlpHandler
from workers.redacting import Redacting

SECRET = "sk-canary-0123456789"
LOG = logging.getLogger("tests.some_library")


class Unsayable:
    """An argument that cannot become text."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


WRONG: dict[str, Callable[[], None]] = {
    "too few arguments": lambda: LOG.warning(f"got %d of %s with {SECRET}", 5),
    "another type": lambda: LOG.warning("got %d of " + SECRET, "text"),
    "an argument that raises": lambda: LOG.warning(f"{SECRET}: %s", Unsayable()),
    "a message that raises": lambda: LOG.warning(Unsayable()),
    "a place that the format does not know": lambda: LOG.warning(f"{SECRET} %(missing)s", {"other": SECRET}),
    "ids of its own": lambda: LOG.warning(SECRET, extra={"ids": 5}),
}


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """What an exporter gets of the logs."""
    exporter: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    monkeypatch.setattr(_logs, "get_logger", provider.get_logger)
    yield lambda: [str(each.log_record.body) for each in exporter.get_finished_logs()]
    provider.shutdown()


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_log_call_fails_nobody_and_tells_no_secret(
    wrong: Callable[[], None],
    redacted: bool,
    exported: Callable[[], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, sent = logging.StreamHandler(), OtlpHandler()
    for handler in (plain, sent):
        if redacted:
            handler.addFilter(Redacting([SECRET]))
    monkeypatch.setattr(LOG, "handlers", [plain, sent])
    monkeypatch.setattr(LOG, "propagate", False)
    wrong()
    LOG.warning("and on")
    shown, told = capsys.readouterr().err, exported()
    assert "and on" in shown
    assert told[-1] == "and on"
    if redacted:
        assert len(told) == 2, "what was wrong is told too"
        assert SECRET not in shown + "".join(told)
