"""Structured logs: a constant event and key-value facts, one JSON object a line or text for people.

Bind facts once at the edge of a loop (``log.bind(controller=…)``) and pass the logger down. Values
under the keys of ``REDACTED`` never reach a record.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

REDACTED = frozenset({"token", "authorization", "password", "secret", "data", "private_key"})
_ROOT = "grange"


class Logger:
    """A named logger with bound facts; cheap to derive, safe to share."""

    __slots__ = ("_facts", "_logger")

    def __init__(self, name: str, facts: dict[str, object] | None = None) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}" if name else _ROOT)
        self._facts = facts or {}

    def bind(self, **facts: object) -> "Logger":
        """The same logger with more facts on every record."""
        bound = Logger("", {**self._facts, **facts})
        bound._logger = self._logger
        return bound

    def _log(self, level: int, event: str, facts: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            merged = {**self._facts, **facts}
            for key in REDACTED.intersection(merged):
                merged[key] = "…"
            self._logger.log(level, event, extra={"facts": merged})

    def debug(self, event: str, **facts: object) -> None:
        """For developers."""
        self._log(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: object) -> None:
        """A state change that an operator would narrate."""
        self._log(logging.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Degraded, but handled."""
        self._log(logging.WARNING, event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Needs a human."""
        self._log(logging.ERROR, event, facts)


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """The facts of a record made by ``Logger``; empty for records of other libraries."""
    facts = getattr(record, "facts", {})
    return facts if isinstance(facts, dict) else {}


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, msg, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line.update((key, _plain(value)) for key, value in facts_of(record).items())
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """A line for people: time, level, event, facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        facts = " ".join(f"{key}={_plain(value)}" for key, value in facts_of(record).items())
        head = f"{at} {record.levelname.lower():<7} {record.getMessage()}"
        line = f"{head}  {facts}" if facts else head
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(
    *, level: str = "info", json_lines: bool = False, stream: TextIO | None = None
) -> None:
    """Send the records of Grange to a stream; called once, by ``app``.

    Args:
        level: debug, info, warning or error.
        json_lines: JSON objects instead of text.
        stream: where to; standard error by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else TextFormatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
