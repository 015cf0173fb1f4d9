"""What a provider's notice that it takes a machine away means."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api.kinds.machine import Machine
from grange.api.kinds.pod import Pod
from grange.machines.disruption.disruption_candidates import moving_pods
from grange.machines.disruption.node_drain import DRAIN_MIN_S
from grange.machines.providers.provider import Interruption
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.machine_facts import is_spot, type_of, zone_of

_MARGIN_S = 10.0
"""Left between the end of the last pod and that of the machine."""


@dataclass(frozen=True, slots=True)
class InterruptionResponse:
    """What is done about a notice.

    Attributes:
        machine: name of the machine.
        deadline: when it will be gone; None: it is only a warning.
        reason: for people.
    """

    machine: str
    deadline: datetime | None
    reason: str

    def drains(self, pods: Iterable[Pod], *, replaced: bool, now: datetime) -> bool:
        """Whether to begin with the drain now.

        It begins when what replaces the machine is available, and no later than its pods need to end in
        time. After a mere warning it waits for the replacement.

        Args:
            pods: on the machine.
            replaced: all of them have a place elsewhere that is available.
            now: wall time.
        """
        moving = moving_pods(pods)
        if replaced or not moving:
            return True
        if self.deadline is None:
            return False
        longest = max(pod.spec.termination_grace_period_seconds for pod in moving)
        return now >= self.deadline - timedelta(seconds=longest + DRAIN_MIN_S + _MARGIN_S)


def respond(
    notice: Interruption, machine: Machine, capacity: CapacityMemory, now: datetime
) -> InterruptionResponse:
    """The response to a notice; a spot offering that is taken away is left alone for a while.

    Args:
        notice: of the provider.
        machine: that the instance is of.
        capacity: what could not be had lately.
        now: when the notice came.
    """
    if notice.rebalance:
        return InterruptionResponse(machine.metadata.name, None, notice.reason)
    if is_spot(machine):
        capacity.refuse(
            type_of(machine), zone_of(machine), spot=True, now=now, reason=notice.reason
        )
    deadline = now + timedelta(seconds=notice.within_s)
    return InterruptionResponse(machine.metadata.name, deadline, notice.reason)
