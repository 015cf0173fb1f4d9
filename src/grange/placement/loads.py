"""A node's load: what it offers and what its pods need together.

Loads are immutable values, and most nodes of a cluster have one of few: they are alike and hold alike
pods. Equal loads are therefore one object (as long as the register has room), which remembers what it
becomes with one pod more or less. Charging a pod is then a look-up, and what is known of a load
holds for the next node that has it. Nothing relies on the sharing for its results.
"""

from collections.abc import Hashable, Sequence

import msgspec

from grange.api.pod_requests import PodRequest, Resources
from grange.placement import devices
from grange.placement.node_usage import IDLE, Usage, changed
from grange.placement.ports_and_disks import Holding

_REGISTER_MAX = 20_000  # of some 500 bytes each
_STEPS_MAX = 1_000


class Load:
    """A load; compared by identity, so that tables keyed by it are quick."""

    __slots__ = ("_after", "_before", "allocatable", "usage")

    def __init__(self, allocatable: Resources, usage: Usage) -> None:
        self.allocatable = allocatable
        self.usage = usage
        # By the request's identity; the request is kept, so that its number is not used again.
        self._after: dict[int, tuple[PodRequest, Load]] = {}
        self._before: dict[int, tuple[PodRequest, Load]] = {}

    def changed(
        self, request: PodRequest, ports: tuple[Holding, ...], held: Sequence[int], sign: int
    ) -> "Load":
        """The load with one more pod (1), or one less (-1): each is the exact inverse of the other."""
        known = self._after if sign > 0 else self._before
        plain = not (ports or held)
        if plain and (found := known.get(id(request))) is not None:
            return found[1]
        usage = changed(self.usage, request, ports, sign)
        if held:
            used = devices.changed(usage.devices, devices.asked(request), held, sign)
            usage = msgspec.structs.replace(usage, devices=used)
        load = of(self.allocatable, usage)
        if plain:
            if len(known) >= _STEPS_MAX:
                known.clear()
            known[id(request)] = (request, load)
        return load

    def offered(self, allocatable: Resources) -> "Load":
        """The same pods on a node that offers something else."""
        return of(allocatable, self.usage)

    def forget(self) -> None:
        """Drop what it remembers of other loads."""
        self._after.clear()
        self._before.clear()


_register: dict[Hashable, Load] = {}


def of(allocatable: Resources, usage: Usage) -> Load:
    """The load of these two."""
    if usage.ports:
        return Load(allocatable, usage)  # ports seldom repeat from node to node
    key = (
        _amounts(allocatable),
        usage.cpu_milli,
        usage.memory_bytes,
        usage.ephemeral_bytes,
        usage.pods,
        usage.nonzero_cpu_milli,
        usage.nonzero_memory_bytes,
        frozenset(usage.scalars.items()) if usage.scalars else None,
        usage.devices,
    )
    found = _register.get(key)
    if found is None:
        if len(_register) >= _REGISTER_MAX:
            for load in _register.values():
                load.forget()
            _register.clear()
        found = _register[key] = Load(allocatable, usage)
    return found


def _amounts(offered: Resources) -> Hashable:
    return (
        offered.cpu_milli,
        offered.memory_bytes,
        offered.ephemeral_bytes,
        offered.pods,
        frozenset(offered.scalars.items()) if offered.scalars else None,
    )


NOTHING = of(Resources(), IDLE)
