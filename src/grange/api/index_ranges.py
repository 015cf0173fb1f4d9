"""Sets of indexes as text, as batch/v1 writes them: ``0-3,7``."""

import re
from collections.abc import Iterable

from grange.base.errors import GrangeError

INDEX_MAX = 100_000
"""The number of indexes that a job may have."""

_RANGE = re.compile(r"(0|[1-9][0-9]{0,9})(?:-(0|[1-9][0-9]{0,9}))?", re.ASCII)


class InvalidIndexRanges(GrangeError):
    """The text is no list of ranges; the message names the part and the reason."""


def parse(text: str) -> frozenset[int]:
    """The indexes that the text lists; none for the empty text.

    Raises:
        InvalidIndexRanges: a part is no range, an index exceeds ``INDEX_MAX``, or the ranges
            are not in ascending order.
    """
    found: set[int] = set()
    last = -1
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise InvalidIndexRanges(f'"{part}" is no index or range; write them like 0-3,7')
        first = int(match[1])
        end = first if match[2] is None else int(match[2])
        if end < first:
            raise InvalidIndexRanges(f'"{part}" ends before it begins')
        if first <= last:
            raise InvalidIndexRanges(f'"{part}" must begin after {last}: ranges ascend')
        if end >= INDEX_MAX:
            raise InvalidIndexRanges(f'"{part}" exceeds the largest index, {INDEX_MAX - 1}')
        found.update(range(first, end + 1))
        last = end
    return frozenset(found)


def written(indexes: Iterable[int]) -> str:
    """The text that lists the indexes, with as few ranges as possible."""
    parts: list[str] = []
    first = last = -1
    for index in sorted(set(indexes)):
        if index == last + 1 and first >= 0:
            last = index
            continue
        if first >= 0:
            parts.append(_range(first, last))
        first = last = index
    if first >= 0:
        parts.append(_range(first, last))
    return ",".join(parts)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
