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
        record.msg, record.args = redact(record.getMessage(), self._secrets), ()
        if record.exc_info:
            text = logging.Formatter().formatException(record.exc_info)
            hidden = redact(text, self._secrets)
            if hidden != text:
                record.exc_text, record.exc_info = hidden, None
        return True


def redact_logs(secrets: Iterable[str]) -> None:
    """Every handler of the root logger, from now on."""
    hiding = Redacting(secrets)
    for handler in logging.getLogger().handlers:
        handler.addFilter(hiding)
