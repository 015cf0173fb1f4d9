"""What a provider's notice that it takes a machine away means."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.machines.disruption.disruption_candidates import moving_pods
from grange.machines.disruption.disruption_plan import INTERRUPTED, POOL_DELETED
from grange.machines.disruption.disruption_progress import MARGIN_S, DisruptionRecord, record_of
from grange.machines.disruption.node_drain import DRAIN_MIN_S
from grange.machines.providers.provider import Interruption
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.machine_facts import is_spot, type_of, zone_of


def respond(
    notice: Interruption, machine: Machine, capacity: CapacityMemory, now: datetime
) -> DisruptionRecord | None:
    """The record of a machine that is taken away; None where nothing is done about it.

    A spot offering that is taken away is left alone for a while. Replacements that were ordered for
    another reason stay the machine's. A notice that comes again does not move the time. A warning moves
    no pod that could not be replaced first.

    Args:
        notice: of the provider.
        machine: that the instance is of.
        capacity: what could not be had lately.
        now: when the notice came.
    """
    if not notice.rebalance and is_spot(machine):
        capacity.refuse(
            type_of(machine), zone_of(machine), spot=True, now=now, reason=notice.reason
        )
    ends = "" if notice.rebalance else timestamps.rfc3339(now + timedelta(seconds=notice.within_s))
    known = record_of(machine)
    if notice.rebalance and machine.phase is not MachinePhase.AVAILABLE:
        return None
    if known is None:
        known = DisruptionRecord("", "", timestamps.rfc3339(now), ())
    elif known.reason in (INTERRUPTED, POOL_DELETED) and (known.deadline or notice.rebalance):
        return None
    if known.reason == POOL_DELETED:  # it is drained already: by the earlier of both times
        return msgspec.structs.replace(known, deadline=ends)
    return msgspec.structs.replace(
        known,
        reason=INTERRUPTED,
        message=f"{INTERRUPTED}: {notice.reason}",
        together=(machine.metadata.name,),
        forced=True,
        deadline=ends,
    )


def is_overdue(record: DisruptionRecord, pods: Iterable[Pod], now: datetime) -> bool:
    """Whether the drain must begin now, replaced or not, for the pods to end in time.

    Args:
        record: of the machine.
        pods: on the machine.
        now: wall time.
    """
    if not record.deadline:
        return False
    longest = max(
        (pod.spec.termination_grace_period_seconds for pod in moving_pods(pods)), default=0
    )
    spare_s = longest + DRAIN_MIN_S + MARGIN_S
    return now >= timestamps.parse(record.deadline) - timedelta(seconds=spare_s)
