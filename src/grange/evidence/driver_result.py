"""Figures from the JSON that a driver reports; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from grange.api import jsonpath
from grange.api.kinds.testsession import SessionMetric, SessionMetricResult
from grange.api.meta import Document
from grange.base.errors import GrangeError

_SHOWN = 80  # characters of a value in a message


class ResultError(GrangeError):
    """A result cannot be used; the message names what it is and why."""


@dataclass(frozen=True, slots=True)
class ParsedMetrics:
    """What the result had of the metrics that were asked for.

    Attributes:
        values: of those that were found, in order.
        problems: one message for each of the others.
    """

    values: tuple[SessionMetricResult, ...] = ()
    problems: tuple[str, ...] = ()


def parse(raw: bytes, where: str) -> Document:
    """A JSON object.

    Args:
        raw: its text.
        where: what it is, for messages.

    Raises:
        ResultError: it is something else.
    """
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultError(
            f"cannot read {where}: {error}; the driver must write one JSON object"
        ) from error
    if not isinstance(found, dict):
        raise ResultError(
            f"cannot read {where}: it is JSON but no object; the driver must write one JSON object"
        )
    return found


def last_object(log: bytes) -> Document | None:
    """The last line of a log that is a JSON object, if any."""
    for line in reversed(log.splitlines()):
        text = line.strip()
        if text.startswith(b"{") and text.endswith(b"}"):
            try:
                return parse(text, "a line")
            except ResultError:
                continue
    return None


def read_metrics(result: Document, wanted: Sequence[SessionMetric]) -> ParsedMetrics:
    """The figures in a result."""
    values, problems = [], []
    for metric in wanted:
        try:
            value = _number(jsonpath.select(metric.json_path, result))
        except (ResultError, jsonpath.JsonPathError, RecursionError) as error:
            problems.append(f"metric {metric.name}: {metric.json_path}: {error}")
        else:
            values.append(SessionMetricResult(metric.name, value, metric.unit, metric.better))
    return ParsedMetrics(tuple(values), tuple(problems))


def _number(found: list[object]) -> float:
    if len(found) != 1:
        raise ResultError(f"it selects {len(found)} values of the driver's result; name one number")
    value = found[0]
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ResultError(f"{_shown(value)} is no number; name a field that holds one")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ResultError(f"{_shown(value)} is no finite number; report one")
    return number


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
