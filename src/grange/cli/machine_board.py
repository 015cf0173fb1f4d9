"""Machines and their pools as rows: pure functions of records, nodes, pods and the time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation

import msgspec

from grange.api.fields import lookup
from grange.api.kinds.machine import ON_DEMAND, SPOT, Machine
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import NodePool
from grange.api.kinds.pod import FINISHED
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.printing import cells
from grange.base.plurals import counted
from grange.cli.printers import table

HEAD = ("NAME", "POOL", "TYPE", "ZONE", "PHASE", "FOR", "NODE", "PRICE/H", "PODS", "REASON")
_WIDE_HEAD = ("MARKET", "INSTANCE", "ADDRESS", "POD", "MESSAGE")
_POOLS_HEAD = ("POOL", "PROVIDER", "MODE", "BOOTING", "AVAILABLE", "CLAIMED", "OTHER", "PRICE/H")

_P = MachinePhase
_BOOTS = frozenset({_P.CREATING, _P.CREATED})
_FOR = HEAD.index("FOR")


@dataclass(frozen=True, slots=True)
class MachineSight:
    """What is known of machines at one time.

    Attributes:
        machines: their records.
        nodes: by name; None where the user may not list them.
        pods: all pods; None where the user may not list them.
    """

    machines: Sequence[Document]
    nodes: Mapping[str, Document] | None
    pods: Iterable[Document] | None


def lines(sight: MachineSight, now: datetime, *, wide: bool = False) -> list[str]:
    """The table of machines, and what they cost together; empty where there are none."""
    if not sight.machines:
        return []
    heading = [*HEAD, *(_WIDE_HEAD if wide else ())]
    shown = rows(sight, now, wide=wide)
    return [*table.render([heading, *shown]), "", total(sight.machines)]


def steady_rows(sight: MachineSight, now: datetime) -> list[list[str]]:
    """The rows without what changes only with time."""
    return [row[:_FOR] + row[_FOR + 1 :] for row in rows(sight, now)]


def rows(sight: MachineSight, now: datetime, *, wide: bool = False) -> list[list[str]]:
    """The cells of machines: by pool, then the oldest first."""
    counts = None if sight.pods is None else _counts(sight.pods)
    found = sorted((view(item) for item in sight.machines), key=_order)
    return [
        [*_row(machine, sight.nodes, counts, now), *(_wide(machine) if wide else ())]
        for machine in found
    ]


def view(document: Document) -> Machine:
    """A machine's typed view."""
    return msgspec.convert(document, Machine)


def total(machines: Iterable[Document]) -> str:
    """How many machines there are and what they cost an hour."""
    live = [each for each in map(view, machines) if each.phase is not _P.TERMINATED]
    known = [price for each in live if (price := price_of(each)) is not None]
    unknown = len(live) - len(known)
    aside = f"; the price of {unknown} is not known" if unknown else ""
    return f"{counted(len(live), 'machine')}, {sum(known, Decimal(0))} per hour{aside}"


def pool_lines(pools: Iterable[Document]) -> list[str]:
    """The table of pools, and under it why some cannot be served."""
    found = sorted((msgspec.convert(item, NodePool) for item in pools), key=_name)
    if not found:
        return []
    shown = table.render([_POOLS_HEAD, *map(_pool_row, found)])
    faults = [
        f"{pool.metadata.name}: {item.reason}: {item.message}"
        for pool in found
        for item in pool.status.conditions
        if item.status == "False"
    ]
    return [*shown, *(["", *faults] if faults else [])]


def _name(pool: NodePool) -> str:
    return pool.metadata.name


def _order(machine: Machine) -> tuple[str, str, str]:
    meta = machine.metadata
    return machine.spec.pool, meta.creation_timestamp or "", meta.name


def _counts(pods: Iterable[Document]) -> dict[str, int]:
    """Pods that have not ended, by the name of their node."""
    found: dict[str, int] = {}
    for pod in pods:
        node = lookup(pod, "spec.nodeName")
        if node and lookup(pod, "status.phase") not in FINISHED:
            found[node] = found.get(node, 0) + 1
    return found


def _row(
    machine: Machine,
    nodes: Mapping[str, Document] | None,
    counts: Mapping[str, int] | None,
    now: datetime,
) -> list[str]:
    status, name = machine.status, machine.metadata.name
    stage = f" ({status.stage})" if status.stage and machine.phase in _BOOTS else ""
    price = price_of(machine)
    return [
        name,
        machine.spec.pool,
        status.instance_type or machine.spec.instance_type,
        status.zone or machine.spec.placement.zone,
        f"{machine.phase.value}{stage}",
        cells.age_of(phase_since(machine), now.timestamp()),
        cells.UNKNOWN if nodes is None else _node_state(nodes.get(machine.node)),
        "" if price is None else f"{price}",
        cells.UNKNOWN if counts is None else str(counts.get(machine.node, 0)),
        _reason(machine),
    ]


def _wide(machine: Machine) -> list[str]:
    status = machine.status
    spot = status.spot if status.instance_id else machine.spec.spot
    message = status.history[-1].message if status.history else ""
    return [
        SPOT if spot else ON_DEMAND,
        status.instance_id,
        status.addresses[0].address if status.addresses else "",
        status.bound_pod_name or status.holder,
        message,
    ]


def phase_since(machine: Machine) -> str | None:
    """When it came into its phase; its history has no entry of what was created just now."""
    for entry in reversed(machine.status.history):
        if entry.phase == machine.phase.value:
            return entry.time
    return machine.metadata.creation_timestamp


def _node_state(document: Document | None) -> str:
    if document is None:
        return ""
    node = msgspec.convert(document, Node)
    ready = "Ready" if is_ready(node) else "NotReady"
    return f"{ready},SchedulingDisabled" if node.spec.unschedulable else ready


def price_of(machine: Machine) -> Decimal | None:
    """Of its instance, or of the offering that is tried first."""
    offered = machine.spec.candidates[0].price_per_hour if machine.spec.candidates else ""
    try:
        return Decimal(machine.status.price_per_hour or offered)
    except InvalidOperation:
        return None


def _reason(machine: Machine) -> str:
    """Why it is in its phase; of a boot that goes on, the last error."""
    status = machine.status
    if machine.phase in _BOOTS and status.last_error:
        return status.last_error
    return status.history[-1].reason if status.history else ""


def _pool_row(pool: NodePool) -> list[str]:
    counts = dict(pool.status.machines)
    booting = sum(counts.pop(phase.value, 0) for phase in _BOOTS)
    available = counts.pop(_P.AVAILABLE.value, 0)
    claimed = counts.pop(_P.CLAIMED.value, 0)
    counts.pop(_P.TERMINATED.value, None)
    other = sum(counts.values())
    return [
        pool.metadata.name,
        pool.spec.provider,
        pool.spec.mode,
        *map(str, (booting, available, claimed, other)),
        pool.status.price_per_hour,
    ]
