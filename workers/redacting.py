"""Logs without secrets, whoever writes them."""

import logging
from collections.abc import Iterable

from activities.errors import redact, spellings


class Redacting(logging.Filter):
    """Replaces these secrets in messages and tracebacks. For handlers: those see what every logger writes."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        self._secrets = spellings(secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets everything through."""
        record.msg, record.args = redact(_said(record), self._secrets), ()
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            hidden = redact(text, self._secrets)
            if hidden != text:
                record.exc_text, record.exc_info = hidden, None
        return True


def _said(record: logging.LogRecord) -> str:
    """The message. Of a wrong log call what can be had: it may be a tool's or a library's, which it must not fail."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument raises while it becomes text
        plain = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        return f"{plain} (its arguments do not fit: {type(error).__name__})"


def redact_logs(secrets: Iterable[str]) -> None:
    """Every handler of the root logger, from now on."""
    hiding = Redacting(secrets)
    for handler in logging.getLogger().handlers:
        handler.addFilter(hiding)
