"""What a scaling algorithm decides: a plan of starts, stops, bindings and skips, each with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from grange.api.kinds.machine import Machine, MachineSpec
from grange.api.kinds.pod import Pod


@dataclass(frozen=True, slots=True)
class MachineStart:
    """A machine to order.

    Attributes:
        name: of the new Machine, and the token of its launch.
        spec: of the new Machine.
        pods: ``namespace/name`` of the pods that it is for; empty for standby and leases.
        lease_uid: of the MachineLease that it is for; empty for none.
        pod_uid: of the pod that it is bound to; empty where none is.
        reason: for people, e.g. ``pod default/a waits``.
        annotations: of the new Machine.
    """

    name: str
    spec: MachineSpec
    pods: tuple[str, ...] = ()
    pod_uid: str = ""
    reason: str = ""
    lease_uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineStop:
    """A machine to end, if it is still as it was when that was decided.

    Attributes:
        name: of the Machine.
        version: its resourceVersion then.
        reason: for people.
        park: switch it off and keep it, as a stopped standby machine.
    """

    name: str
    version: str
    reason: str = ""
    park: bool = False


@dataclass(frozen=True, slots=True)
class PodBinding:
    """A machine that is meant for a pod; several pods of a packed machine have one each.

    Attributes:
        pod: ``namespace/name``.
        pod_uid: of that pod.
        machine: name of the Machine, which may be one of the plan's starts.
        reason: for people.
        kept: the machine's record has it already: nothing is to be written.
    """

    pod: str
    pod_uid: str
    machine: str
    reason: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class MachineReserve:
    """A machine that is kept for a MachineLease that waits.

    Attributes:
        machine: name of its node; not always one of a NodePool.
        lease_uid: of the lease.
        reason: for people.
    """

    machine: str
    lease_uid: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PodSkip:
    """A pod or MachineLease for which nothing can be done now, and why; without a UID it is standby.

    Attributes:
        pod: ``namespace/name``; empty for what is no pod.
        pod_uid: of that pod or lease.
        reason: for people.
        pools: names of the pools that it is about; empty for all that the plan is for.
    """

    pod: str
    pod_uid: str
    reason: str
    pools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalingPlan:
    """What to do. Nothing in it has been done.

    Attributes:
        start: machines to order, the most urgent first.
        stop: machines to end.
        bind: which machine is for which pod.
        skip: pods that get none.
        reserve: machines that are there or boot and that leases wait for.
        resume: names of stopped standby machines to switch on.
        unbind: names of machines whose binding names a pod that waits no longer, or that they do not
            suit. They count as free from now on (``status.availableTime``), for their grace.
    """

    start: tuple[MachineStart, ...] = ()
    stop: tuple[MachineStop, ...] = ()
    bind: tuple[PodBinding, ...] = ()
    skip: tuple[PodSkip, ...] = ()
    reserve: tuple[MachineReserve, ...] = ()
    resume: tuple[str, ...] = ()
    unbind: tuple[str, ...] = ()

    @property
    def bindings(self) -> Mapping[str, str]:
        """Names of machines by UID of their pod; kip's map."""
        return {binding.pod_uid: binding.machine for binding in self.bind}


class ScalingAlgorithm(Protocol):
    """Decides which machines a pool needs, or all pools whose machines are shared."""

    def compute(
        self, nodes: Sequence[Machine], pods: Sequence[Pod], *, now: datetime
    ) -> ScalingPlan:
        """A plan; the same input gives the same plan, names included.

        Args:
            nodes: the machines of the pools, whatever their phase; they are not changed.
            pods: the pods that the pools could serve, whatever their phase; for shared machines all
                pods, since those that run use some of them.
            now: wall time.

        Returns:
            The plan; a pod for which nothing can be decided is a skip with its reason.
        """
