"""Standby of packed pools: machines that are kept though no pod is on them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import numpy as np

from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.machine_phases import MachinePhase
from grange.machines.scaling.kept_standby import KeptStandby
from grange.machines.scaling.machine_facts import OFF, is_spot, type_of
from grange.machines.scaling.packing_bins import PackingBins
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.standby import StandbyShape, wanted
from grange.machines.scaling_plan import MachineStop, PodSkip
from grange.placement.columns import Integers

BOOTED_STANDBY, STOPPED_STANDBY = "booted", "stopped"

_RANK = {
    MachinePhase.AVAILABLE: 0,
    MachinePhase.CREATED: 1,
    MachinePhase.CREATING: 2,
    MachinePhase.STOPPED: 3,
    MachinePhase.STOPPING: 4,
}


def is_off(machine: Machine) -> bool:
    """Whether a machine is kept switched off, or is being switched off for that."""
    return machine.phase in OFF and not machine.is_ending


def standby_machines(
    pools: Iterable[PackedPool], free: Sequence[Machine], now: datetime
) -> Mapping[str, str]:
    """Which free machines standby keeps now, each ``BOOTED_STANDBY`` or ``STOPPED_STANDBY``.

    Args:
        pools: packed pools.
        free: machines without pods, and those that are off or will be.
        now: wall time: schedules open and close by it.
    """
    kept: dict[str, str] = {}
    for pool in pools:
        kept.update(_chosen(pool, free, now)[0])
    return kept


def order_standby(
    bins: PackingBins, free: Sequence[Machine], now: datetime
) -> tuple[list[PodSkip], list[MachineStop]]:
    """Plan the standby machines that are missing; what cannot be had, and what to switch off or end.

    Machines that are on and not needed end by disruption, those that are off here.
    """
    skips: list[PodSkip] = []
    options = bins.options
    standby: dict[str, str] = {}
    for at, pool in enumerate(options.pools):
        kept, missing = _chosen(pool, free, now)
        standby.update(kept)
        for shape, count in missing.items():
            rows = np.asarray(
                [
                    row
                    for row in np.flatnonzero(options.pool_of == at).tolist()
                    if options.rows[row].kind.name == shape.instance_type
                    and options.rows[row].offering.spot == shape.spot
                ],
                np.int64,
            )
            refusal = _refusal(bins, rows)
            for _ in range(count):
                refusal = refusal or bins.add_empty(at, rows[options.available[rows]])
                if refusal:
                    what = f"pool {pool.name}: standby {shape.instance_type}"
                    skips.append(PodSkip("", "", f"{what}: {refusal}", (pool.name,)))
                    break
    park = [
        MachineStop(
            machine.metadata.name,
            machine.metadata.resource_version,
            "kept switched off",
            park=True,
        )
        for machine in free
        if standby.get(machine.metadata.name) == STOPPED_STANDBY
        and machine.phase is MachinePhase.AVAILABLE
    ]
    names = {pool.name for pool in options.pools}
    surplus = [
        MachineStop(machine.metadata.name, machine.metadata.resource_version, "nothing needs it")
        for machine in free
        if machine.phase is MachinePhase.STOPPED
        and machine.spec.pool in names
        and machine.metadata.name not in standby
    ]
    return skips, [*park, *surplus]


def _refusal(bins: PackingBins, rows: Integers) -> str:
    if not len(rows):
        return "the provider does not offer it that way"
    if not bins.options.available[rows].any():
        return bins.options.rows[int(rows[0])].refusal
    return ""


def _chosen(
    pool: PackedPool, free: Sequence[Machine], now: datetime
) -> tuple[Mapping[str, str], Mapping[StandbyShape, int]]:
    """The machines that a pool keeps, as ``standby_machines`` has it, and how many of each shape to order."""
    standby = KeptStandby(
        pool.pool, boot_image=pool.boot_image, template_hash=pool.template_hash, now=now
    )
    kept: dict[str, str] = {}
    missing: dict[StandbyShape, int] = {}
    for shape, count in wanted(pool.pool.spec.standby, now).items():
        chosen, lacking = standby.keep(_fitting(pool.pool, shape, free, kept), shape, count)
        if lacking:
            missing[shape] = lacking
        state = STOPPED_STANDBY if shape.stopped else BOOTED_STANDBY
        kept.update((machine.metadata.name, state) for machine in chosen)
    return kept, missing


def _fitting(
    pool: NodePool, shape: StandbyShape, free: Sequence[Machine], kept: Mapping[str, str]
) -> list[Machine]:
    """Free machines of a shape, the readiest first; for stopped standby those that are off or will be."""
    found = [
        machine
        for machine in free
        if machine.spec.pool == pool.metadata.name
        and machine.metadata.name not in kept
        and machine.phase in _RANK
        and type_of(machine) == shape.instance_type
        and is_spot(machine) == shape.spot
        and (shape.stopped or machine.phase not in OFF)
    ]
    return sorted(
        found,
        key=lambda machine: (
            shape.stopped and machine.phase not in OFF,
            _RANK[machine.phase],
            machine.metadata.name,
        ),
    )
