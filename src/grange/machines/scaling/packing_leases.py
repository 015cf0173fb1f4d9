"""Whole machines for MachineLeases that wait: what is kept for them, and what is ordered.

A lease has all of its machines at once, so nothing is ordered for one that cannot have all. The lease
controller chooses whose turn it is (condition ``MachinesRequested``) and gives the machines; here nothing is
bound. Which machine a lease gets is open until then, so they are counted and not assigned.
"""

from collections.abc import Collection, Sequence

import numpy as np

from grange.api.kinds.machinelease import POOL_LABEL
from grange.machines.scaling.lease_needs import LeaseNeed
from grange.machines.scaling.packing_bins import PackingBins
from grange.machines.scaling.packing_hosts import PackingHost
from grange.machines.scaling_plan import MachineReserve, PodSkip
from grange.placement.columns import Integers
from grange.placement.machine_pools import is_disrupted_node
from grange.placement.machine_table import lease_of
from grange.placement.pool_growth import lease_pool


def reserve_machines(
    bins: PackingBins, leases: Sequence[LeaseNeed], occupied: Collection[str]
) -> tuple[list[MachineReserve], list[PodSkip]]:
    """Keep machines for leases, and plan those that are missing.

    Args:
        bins: with all pods that have found a place.
        leases: that wait, in any order.
        occupied: names of nodes that have pods.

    Returns:
        The machines that are there or boot and that are meant for leases, and why leases get none.
    """
    if not leases:
        return [], []
    free: dict[str, list[PackingHost]] = {}
    for host, taken in zip(bins.hosts, bins.taken, strict=True):
        pool = host.node.metadata.labels.get(POOL_LABEL, "")
        if pool and not taken and host.name not in occupied and not is_disrupted_node(host.node):
            free.setdefault(pool, []).append(host)
    reserves: list[MachineReserve] = []
    skips: list[PodSkip] = []
    for need in sorted(leases, key=lambda each: each.order):
        mark, kept, refusal = bins.mark(), list[PackingHost](), ""
        for pool, count in need.machines:
            found = [host for host in free.get(pool, ()) if lease_of(host.node) in ("", need.uid)]
            # What a claim that has begun bears the marks of is its own already.
            found.sort(key=lambda host: not lease_of(host.node))
            kept += found[:count]
            for _ in range(count - len(found)):
                refusal = refusal or _order(bins, pool, need)
        if refusal:
            bins.go_back(mark)
            skips.append(PodSkip("", need.uid, f"{need.name}: {refusal}", _makers(bins, need)))
            continue
        for host in kept:
            free[host.node.metadata.labels[POOL_LABEL]].remove(host)
            reserves.append(MachineReserve(host.name, need.uid, f"{need.name} waits for it"))
    return reserves, skips


def _order(bins: PackingBins, pool: str, need: LeaseNeed) -> str:
    """Plan one machine of a pool; why not, or empty."""
    options, refusals = bins.options, list[str]()
    for at, packed in enumerate(options.pools):
        if lease_pool(packed.pool) != pool:
            continue
        rows: Integers = np.flatnonzero(options.pool_of == at)
        usable = rows[options.available[rows]]
        if len(usable):
            refusal = bins.add_empty(at, usable, lease=need)
        else:
            refusal = options.rows[int(rows[0])].refusal if len(rows) else "it offers no type"
        if not refusal:
            return ""
        refusals.append(f"pool {packed.name}: {refusal}")
    return "; ".join(refusals) or f"no NodePool makes machines of pool {pool}"


def _makers(bins: PackingBins, need: LeaseNeed) -> tuple[str, ...]:
    wanted = {pool for pool, _ in need.machines}
    return tuple(one.name for one in bins.options.pools if lease_pool(one.pool) in wanted)
