"""How many more machines NodePools may make for a pool of leases. Pure.

A packed NodePool makes machines of the pool that the label ``pool`` of its template names. Those of a
dedicated one are handed to pods one by one and belong to no pool of leases.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.machinelease import COUNT_MAX, POOL_LABEL
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import PACKED, NodePool


@dataclass(frozen=True, slots=True)
class PoolGrowth:
    """What NodePools may add to a pool.

    Attributes:
        limit: what bounds that, for people.
        refusal: why none is to be expected soon all the same; empty if it is.
        boot_s: how long one boots, by the slowest NodePool; None where that is not known.
    """

    machines: int
    limit: str = ""
    refusal: str = ""
    boot_s: float | None = None


def lease_pool(pool: NodePool) -> str:
    """The pool that new machines of a NodePool belong to; empty for none."""
    if pool.spec.mode != PACKED or pool.metadata.deletion_timestamp is not None:
        return ""
    return pool.spec.template.labels.get(POOL_LABEL, "")


def most_machines(pool: NodePool) -> int | None:
    """How many machines a NodePool may have; None where nothing limits that, as far as it is known.

    Limits of resources and prices count once the node controller has worked them out.
    """
    limits, status = pool.spec.limits, pool.status
    known = status.max_machines if status.observed_generation == pool.metadata.generation else None
    found = [most for most in (limits.machines, known) if most is not None]
    return min(found, default=None)


def growth_of(pools: Iterable[NodePool], machines: Mapping[str, int]) -> PoolGrowth | None:
    """What NodePools, sorted by name, may add to the pool that they make machines for; None without any.

    ``machines`` is how many nodes each has.
    """
    total, limits, refusals = 0, list[str](), list[str]()
    boots: list[int | None] = []
    for pool in pools:
        name, most = pool.metadata.name, most_machines(pool)
        more = COUNT_MAX if most is None else max(0, most - machines.get(name, 0))
        total += more
        limits.append(f"NodePool {name} " + ("has no limit" if most is None else f"allows {most}"))
        refusal = _refusal(pool)
        if refusal:
            refusals.append(f"NodePool {name}: {refusal}")
        elif more:
            boots.append(pool.status.boot_seconds)
    if not limits:
        return None
    known = [boot_s for boot_s in boots if boot_s is not None]
    return PoolGrowth(
        min(total, COUNT_MAX),
        ", ".join(limits),
        "" if boots else "; ".join(refusals),
        max(known) if known and len(known) == len(boots) else None,
    )


def node_pool_of(node: Node) -> str:
    """The NodePool that has made the machine of a node; empty for none."""
    return node.metadata.labels.get(NODE_POOL_LABEL, "")


def _refusal(pool: NodePool) -> str:
    """Why the last pass over a NodePool could not order what was wanted; empty if it could."""
    wrong = (one for one in pool.status.conditions if one.status == "False")
    return next((one.message or one.reason for one in wrong), "")
