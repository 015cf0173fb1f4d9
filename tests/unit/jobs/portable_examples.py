"""Functions that are sent to members, and what they use of this module."""

from __future__ import annotations

import collections.abc
import functools
import os.path as paths
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FACTORS = (2, 3)
HERE = Path(__file__)


def counted(function: Any) -> Any:
    """A decorator of this module."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return [function(*args), 1]

    return wrapper


@dataclass
class Point:
    """A class of this module."""

    x: int
    tags: list[str] = field(default_factory=list)


def scaled(point: Point) -> int:
    return point.x * FACTORS[1]


def work(x: int, *, name: Missing = "") -> Any:  # type: ignore[name-defined]  # noqa: F821  never evaluated
    """Use everything that can be taken along, in an inner function as well."""

    def inner() -> list[int]:
        return [scaled(Point(x)) for _ in range(FACTORS[0])]

    is_sequence = isinstance(inner(), collections.abc.Sequence)
    with futures.ThreadPoolExecutor(1) as pool:
        base = pool.submit(paths.basename, "/a/b").result()
    return {"values": inner(), "sequence": is_sequence, "base": base, "name": name}


@counted
def decorated(x: int) -> int:
    return x + 1


async def later(x: int) -> int:
    return x + 1


def broken() -> None:
    number = 0
    number = 1 // number


def impossible() -> Path:
    return HERE


def recursive(n: int) -> int:
    return 1 if n < 2 else n * recursive(n - 1)
