"""Specs and names of machines to order."""

from collections.abc import Container, Sequence

from grange.api import names
from grange.api.kinds.machine import (
    MachineOffering,
    MachinePlacement,
    MachineResources,
    MachineSpec,
)
from grange.api.kinds.nodepool import NodePool

_READABLE = names.DNS_LABEL_MAX - names.DIGEST_LENGTH - 1


def machine_spec(
    pool: NodePool,
    candidates: Sequence[MachineOffering],
    resources: MachineResources,
    *,
    zone: str = "",
    boot_image: str = "",
    template_hash: str = "",
) -> MachineSpec:
    """A machine of a pool.

    Args:
        pool: whose.
        candidates: ways to get it, the preferred first; at least one.
        resources: what it must have.
        zone: where it must be; empty: anywhere.
        boot_image: that it boots.
        template_hash: of the pool's present template.
    """
    first, template = candidates[0], pool.spec.template
    return MachineSpec(
        pool=pool.metadata.name,
        provider=pool.spec.provider,
        instance_type=first.instance_type,
        boot_image=boot_image,
        spot=first.spot,
        resources=resources,
        placement=MachinePlacement(zone=zone),
        candidates=tuple(candidates),
        labels=dict(template.labels),
        taints=(*template.taints, *template.startup_taints),
        template_hash=template_hash,
    )


def machine_name(pool: NodePool, known: Container[str], *seeds: str) -> str:
    """A name that the same seeds give again, and no others.

    Args:
        pool: of the machine.
        known: names of machines: two plans of one instant differ in what they see, not in their seeds.
        seeds: what distinguishes the machine from others.
    """
    readable = pool.metadata.name[:_READABLE].rstrip("-")
    name, times = "", 0
    while not name or name in known:
        more = (f"{times}",) if times else ()
        name = f"{readable}-{names.digest(pool.metadata.uid, *seeds, *more)}"
        times += 1
    return name
