"""Random: any node that fits, each as likely as another; the baseline of comparisons.

Score = a hash of the seed, the pod's UID and the node's name, so that a run can be repeated. Every pod
is a class of its own, so this is the most expensive policy for the engine.
"""

from collections.abc import Hashable
from zlib import crc32

import numpy as np

from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugin_args import PluginArgs, configured, within

_NAME = "Random"
_SCALE = 2**20 - 1
_MASK = 2**64 - 1


class Args(PluginArgs, frozen=True, kw_only=True):
    """The seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no seed."""
        within("seed", self.seed, 0, 2**32 - 1)


def _mixed(number: int) -> int:
    """The finaliser of MurmurHash3 over 64 bits; the top 20 of them."""
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number >> 44


class _Random:
    scope = Scope.NODE
    normalise = Normalise.NONE

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def applies(self, pod: PodInfo) -> bool:
        """Always."""
        return True

    def _start(self, pod: PodInfo) -> int:
        return crc32(pod.uid.encode(), self._seed) << 32

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Drawn for this pod and node."""
        return _mixed(self._start(pod) | crc32(node.name.encode()))

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The same for many."""
        start = self._start(pod)
        names = table.names[rows] if isinstance(rows, slice) else [table.names[at] for at in rows]
        drawn = [_mixed(start | crc32(name.encode())) for name in names]
        return np.asarray(drawn, np.int64)


def _signature(pod: PodInfo) -> Hashable:
    return pod.uid


def make(args: Args) -> Plugin:
    """The plugin with this seed."""
    return Plugin(
        _NAME,
        score=_Random(args.seed),
        scale=_SCALE,
        signature=_signature,
        configure=configured(_NAME, Args, make),
    )


PLUGIN = make(Args())
