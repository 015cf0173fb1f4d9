"""Pools of this machine's nodes: sizes as options give them, and which node is in which pool."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click

from grange.api import names
from grange.base.errors import GrangeError


class InvalidPoolSize(GrangeError):
    """A pool's size cannot be read; the message names it and how to write it."""


class PoolSize(NamedTuple):
    """So many nodes with the label ``pool`` of this value; 0 removes the pool."""

    name: str
    nodes: int

    def __str__(self) -> str:
        return f"{self.name}={self.nodes}"


class PoolSizeType(click.ParamType[PoolSize]):
    """``NAME=COUNT`` on the command line."""

    name = "name=count"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PoolSize:
        """The size."""
        try:
            return parse_size(value)
        except InvalidPoolSize as error:
            raise click.UsageError(str(error), ctx) from error


def parse_size(text: str) -> PoolSize:
    """``NAME=COUNT`` as a size.

    Raises:
        InvalidPoolSize: it is none, or the name cannot be a label's value.
    """
    name, _, count = text.rpartition("=")
    if not name or not (count.isascii() and count.isdecimal()):
        raise InvalidPoolSize(f"--pool {text}: write NAME=COUNT, for example workers=3")
    if fault := names.check_label_value(name):
        raise InvalidPoolSize(f"--pool {text}: {name!r} cannot be a pool: {fault}")
    return PoolSize(name, int(count))


def total(pools: Iterable[PoolSize]) -> int:
    """How many nodes the pools take."""
    return sum(pool.nodes for pool in pools)


def listed(pools: Iterable[PoolSize]) -> str:
    """The sizes for a message."""
    return ", ".join(map(str, pools))


def sizes(assigned: Iterable[str]) -> tuple[PoolSize, ...]:
    """The sizes that an assignment has, in the order of the nodes."""
    return tuple(PoolSize(*item) for item in Counter(filter(None, assigned)).items())


def assign(pools: Iterable[PoolSize], nodes: int, before: Sequence[str] = ()) -> tuple[str, ...]:
    """The pool of each node; empty for a node that is in none.

    A node stays in its pool while the pool has room for it, so that only as many nodes change as
    the sizes require. The others are taken in the order of the nodes, pool by pool.

    Args:
        pools: at most ``nodes`` in all.
        nodes: how many nodes there are.
        before: the pools of the nodes the last time; there may be more or fewer of them.
    """
    missing = {pool.name: pool.nodes for pool in pools}
    assigned = [""] * nodes
    for at, name in enumerate(before[:nodes]):
        if missing.get(name, 0):
            assigned[at] = name
            missing[name] -= 1
    waiting = [name for name, count in missing.items() for _ in range(count)]
    free = (at for at, name in enumerate(assigned) if not name)
    for at, name in zip(free, waiting, strict=False):
        assigned[at] = name
    return tuple(assigned)
