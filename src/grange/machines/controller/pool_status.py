"""The status of a pool: its machines by phase, what they have and cost, and whether it can be served."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from statistics import median

import msgspec

from grange.api import conditions, quantity, timestamps
from grange.api.kinds.machine import INITIALIZED_CONDITION, Machine
from grange.api.kinds.nodepool import NodePool, PoolDisruption
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.base.first_few import first_few
from grange.machines.catalogue import InstanceType
from grange.machines.controller.pool_pass import PassResult
from grange.machines.disruption.disruption_progress import deadline_of, record_of
from grange.machines.disruption.node_drain import drain_step, is_protected
from grange.machines.scaling.machine_facts import type_of
from grange.machines.scaling.packing_limits import machines_allowed

READY, LAUNCHING, WITHIN_LIMITS = "Ready", "Launching", "WithinLimits"

TERMINATING = "Terminating"
"""Condition of a deleted pool that has machines yet, and why it is not ready."""

_RESOURCES = ("cpu", "memory")
_SHOWN = 3  # reasons or machines in a message
_BOOTS = 10  # of which the median is taken


def pool_status(
    pool: NodePool,
    machines: Sequence[Machine],
    catalogue: Sequence[InstanceType],
    result: PassResult,
    now: datetime,
) -> Document:
    """The fields of a pool's status after a pass."""
    live = [machine for machine in machines if machine.phase is not MachinePhase.TERMINATED]
    counts: dict[str, int] = {}
    for machine in machines:
        counts[machine.phase.value] = counts.get(machine.phase.value, 0) + 1
    kinds = {kind.name: kind for kind in catalogue}
    amounts = dict.fromkeys(_RESOURCES, 0)
    for machine in live:
        if (kind := kinds.get(type_of(machine))) is not None:
            for name in _RESOURCES:
                amounts[name] += quantity.milli(kind.capacity.get(name, 0))
    found = pool.status.conditions
    for kind_of, verdict in _verdicts(result).items():
        found = conditions.set_status(
            found, kind_of, verdict, generation=pool.metadata.generation, now=now
        )
    return {
        "observedGeneration": pool.metadata.generation,
        "machines": {phase.value: counts.get(phase.value) for phase in MachinePhase},
        "resources": {
            "cpu": quantity.format_milli(amounts["cpu"]),
            "memory": quantity.format_binary(amounts["memory"] // 1000),
        },
        "pricePerHour": f"{total_price(machines)}",
        "maxMachines": machines_allowed(pool, catalogue),
        "bootSeconds": boot_seconds(machines) or pool.status.boot_seconds,
        "bootImage": result.image or pool.status.boot_image,
        "conditions": msgspec.to_builtins(found),
    }


def boot_seconds(machines: Sequence[Machine]) -> int | None:
    """How long machines boot: the median of the last ones that have joined; None without any."""
    boots: list[tuple[datetime, float]] = []
    for machine in machines:
        joined = conditions.find(machine.status.conditions, INITIALIZED_CONDITION)
        launched = machine.status.launch_time
        if joined is None or joined.status != "True" or launched is None:
            continue
        end = timestamps.parse_or(joined.last_transition_time, timestamps.EPOCH)
        took_s = (end - timestamps.parse_or(launched, end)).total_seconds()
        if took_s > 0:
            boots.append((end, took_s))
    latest = [took_s for _, took_s in sorted(boots)[-_BOOTS:]]
    return max(1, round(median(latest))) if latest else None


def is_terminating(pool: NodePool) -> bool:
    """Whether the status of a pool shows that it is deleted and has machines yet."""
    return conditions.is_true(pool.status.conditions, TERMINATING)


def remaining(machines: Sequence[Machine], error: str, drains: Mapping[str, str]) -> str:
    """What a deleted pool waits for.

    Args:
        machines: that have not ended.
        error: why the provider cannot be used; empty if it can.
        drains: what the drains of machines wait for, by name.
    """
    texts = [_remaining_machine(one, drains.get(one.metadata.name, "")) for one in machines]
    shown = first_few(texts, _SHOWN)
    count = f"{len(machines)} {'machine ends' if len(machines) == 1 else 'machines end'}"
    return f"{count}: {shown}" + (f"; the provider fails: {error}" if error else "")


def drain_message(
    machine: Machine, pods: Sequence[Pod], disruption: PoolDisruption, now: datetime
) -> str:
    """What the drain of a machine of a deleted pool waits for; empty where none is under way.

    Args:
        machine: of the pool.
        pods: on its node.
        disruption: of the pool.
        now: wall time.
    """
    record = record_of(machine)
    if record is None or not record.drain_started:
        return ""
    started, deadline = timestamps.parse(record.drain_started), deadline_of(record, disruption)
    step = drain_step(pods, started=started, deadline=deadline, now=now)
    end = f", by force at {timestamps.rfc3339(deadline)}" if deadline is not None else ""
    kept = " (do-not-disrupt)" if any(map(is_protected, pods)) else ""
    return f"drained of {step.waits_for}{kept}{end}" if step.waits_for else ""


def _remaining_machine(machine: Machine, drain: str) -> str:
    status = machine.status
    user = f"pod {status.bound_pod_name}" if status.bound_pod_name else status.holder
    held = f", held by {user}" if user and machine.phase is MachinePhase.CLAIMED else ""
    drained = f", {drain}" if drain and not machine.is_ending else ""
    failed = f", last error: {status.last_error}" if status.last_error else ""
    return f"{machine.metadata.name} ({machine.phase.value}{held}{drained}{failed})"


def total_price(machines: Sequence[Machine]) -> Decimal:
    """What the machines that have not ended cost an hour."""
    live = (machine for machine in machines if machine.phase is not MachinePhase.TERMINATED)
    return sum((_price(machine) for machine in live), Decimal(0))


def _verdicts(result: PassResult) -> dict[str, tuple[str, str, str]]:
    if result.plan is None:
        why = result.reason, result.message or "the provider has not answered yet"
        if result.reason == TERMINATING:
            return {READY: ("False", *why), TERMINATING: ("True", "MachinesRemain", result.message)}
        return {READY: ("False", *why)}
    skips = sorted({skip.reason for skip in result.plan.skip})
    limited = [reason for reason in skips if "limits." in reason]
    refused = [reason for reason in skips if "limits." not in reason]
    return {
        READY: ("False", result.reason, result.message)
        if result.reason
        else ("True", "ProviderReady", "the provider answers"),
        LAUNCHING: _verdict(refused, "MachinesAvailable", "NoMachine"),
        WITHIN_LIMITS: _verdict(limited, "WithinLimits", "LimitsReached"),
    }


def _verdict(reasons: Sequence[str], good: str, bad: str) -> tuple[str, str, str]:
    if not reasons:
        return "True", good, "no pod is refused a machine for this"
    more = f" and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
    return "False", bad, "; ".join(reasons[:_SHOWN]) + more


def _price(machine: Machine) -> Decimal:
    offered = machine.spec.candidates[0].price_per_hour if machine.spec.candidates else ""
    try:
        return Decimal(machine.status.price_per_hour or offered or 0)
    except InvalidOperation:
        return Decimal(0)
