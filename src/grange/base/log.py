"""Structured logs: a constant event and key-value facts, one JSON object a line or text for people.

Bind facts once at the edge of a loop (``log.bind(controller=…)``) and pass the logger down. Values
under a key that names a secret never reach a record, however deep they are nested.
"""

import functools
import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from grange.base import controls

REDACTED = frozenset({"token", "authorization", "password", "secret", "data", "private_key"})
_REDACTED_ENDINGS = tuple(f"_{word}" for word in sorted(REDACTED - {"data"}))
LEVELS = ("debug", "info", "warning", "error")
_RESERVED = frozenset({"ts", "level", "logger", "msg", "trace"})
_HIDDEN = "…"
_SCALARS = frozenset({bool, float, int, str, type(None)})
_ROOT = "grange"


class Logger:
    """A named logger with bound facts; cheap to derive, safe to share."""

    __slots__ = ("_facts", "_logger")

    def __init__(self, name: str, facts: Mapping[str, object] | None = None) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}" if name else _ROOT)
        self._facts = _redacted(facts or {})

    def bind(self, /, **facts: object) -> "Logger":
        """The same logger with more facts on every record."""
        bound = Logger("", {**self._facts, **facts})
        bound._logger = self._logger
        return bound

    def _log(
        self,
        level: int,
        event: str,
        facts: dict[str, object],
        crash: BaseException | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            # Made here and not by ``Logger.log``, which walks up the stack for a caller that is
            # this line every time.
            self._logger.handle(
                new_record(self._logger.name, level, event, self._with_bound(facts), crash)
            )

    def _with_bound(self, facts: Mapping[str, object]) -> dict[str, object]:
        return {**self._facts, **_redacted(facts)}

    def debug(self, event: str, /, **facts: object) -> None:
        """For developers."""
        self._log(logging.DEBUG, event, facts)

    def info(self, event: str, /, **facts: object) -> None:
        """A state change that an operator would narrate."""
        self._log(logging.INFO, event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        """Degraded, but handled."""
        self._log(logging.WARNING, event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        """Needs a human."""
        self._log(logging.ERROR, event, facts)

    def crash(self, event: str, error: BaseException, /, **facts: object) -> None:
        """An unexpected error, with its trace: only supervision points log it."""
        self._log(logging.ERROR, event, {**facts, "error": error}, crash=error)


@functools.lru_cache(maxsize=1024)  # asked again and again about the same few keys
def _names_secret(key: str) -> bool:
    low = key.lower().replace("-", "_")
    return low in REDACTED or low.endswith(_REDACTED_ENDINGS)


def _redacted(facts: Mapping[str, object]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in facts.items():
        if _names_secret(str(key)):
            result[key] = _HIDDEN
        elif type(value) in _SCALARS:  # most are, and asking an abstract class is slow
            result[key] = value
        else:
            result[key] = _redacted(value) if isinstance(value, Mapping) else value
    return result


def new_record(
    name: str,
    level: int,
    event: str,
    facts: dict[str, object],
    crash: BaseException | None = None,
) -> logging.LogRecord:
    """A record as ``Logger`` makes them, of facts without secrets."""
    trace = None if crash is None else (type(crash), crash, crash.__traceback__)
    record = logging.LogRecord(name, level, "", 0, event, (), trace)
    record.facts = facts
    return record


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """The facts of a record made by ``Logger``; empty for records of other libraries."""
    facts = getattr(record, "facts", {})
    return facts if isinstance(facts, dict) else {}


def _plain(value: object) -> object:
    """The value as JSON can hold it."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value)


def _word(value: object) -> str:
    """The value as one word of a line: quoted where it could be taken for more than one."""
    plain = _plain(value)
    if not isinstance(plain, str):
        text = json.dumps(plain, ensure_ascii=False)
        return text if text.isprintable() else json.dumps(plain)
    if plain.isprintable() and plain and not any(c in plain for c in ' "='):
        return plain
    return json.dumps(plain, ensure_ascii=not plain.isprintable())


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
        for key, value in facts_of(record).items():
            line[f"{key}_" if key in _RESERVED else key] = _plain(value)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return controls.escape_json(json.dumps(line, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """A line for people: time, level, event, facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        facts = " ".join(f"{key}={_word(value)}" for key, value in facts_of(record).items())
        head = f"{at} {record.levelname.lower():<7} {record.getMessage()}"
        line = f"{head}  {facts}" if facts else head
        if record.exc_info:
            line += "\n" + controls.escape(self.formatException(record.exc_info))
        return line


def configure(
    *, level: str = "info", json_lines: bool = False, stream: TextIO | None = None
) -> None:
    """Send the records of Grange to a stream; called once, by ``app``.

    Args:
        level: debug, info, warning or error.
        json_lines: JSON objects instead of text.
        stream: where to; standard error by default.

    Raises:
        ValueError: an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else TextFormatter())
    root = logging.getLogger(_ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
