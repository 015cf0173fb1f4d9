"""Random: any node that fits, each as likely as another; the baseline of comparisons.

Score = a hash of the seed, the pod's UID and the node's name, so that a run can be repeated. Every pod
is a class by itself, so this is the most expensive policy for the engine.
"""

from zlib import crc32

from grange.scheduler.framework import Plugin
from grange.scheduler.node_attributes import NAME
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.plugin_args import PluginArgs, configurable, within
from grange.scheduler.podinfo import PodInfo

_MASK = 2**64 - 1


class RandomArgs(PluginArgs, frozen=True, kw_only=True):
    """The seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no seed."""
        within("seed", self.seed, 0, 2**32 - 1)


class Random(NodeScore[str, str]):
    """Mixes the pod's UID with the node's name.

    Args:
        seed: another seed gives another order.
    """

    name = "Random"
    attribute = NAME
    scale = 2**20 - 1

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def demand(self, pod: PodInfo) -> str:
        """The pod's UID."""
        return pod.uid

    def score_value(self, demand: str, value: str) -> int:
        """A hash of pod and node."""
        return _mixed(crc32(demand.encode(), self._seed) << 32 | crc32(value.encode()))


def _mixed(number: int) -> int:
    """The finaliser of MurmurHash3 over 64 bits; the top 20 of them."""
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number >> 44


def make(args: RandomArgs) -> Plugin:
    """The plugin with this seed."""
    return Random(args.seed).plugin()


PLUGIN = configurable(RandomArgs, make)
