"""Events that machines have, and pods and leases: what happened to them, and why one has no machine."""

from collections.abc import Callable, Mapping

from grange.api.kinds import MACHINE, MACHINELEASE, NODEPOOL, POD
from grange.api.kinds.machine import Machine
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.nodepool import NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.api.scheme import AnyKind
from grange.machines.providers.provider import Instance
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

_WORRYING = frozenset({"BootTimeout", "InstanceGone", "InstanceEnding", "Unhealthy"})


class MachineEvents:
    """Reports through one recorder.

    Args:
        recorder: of the controller.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._skipped: dict[str, str] = {}

    def moved(self, before: Machine, after: Machine, reason: str, message: str) -> None:
        """A machine came into another phase."""
        refused = before.phase is MachinePhase.CREATING and after.phase is MachinePhase.TERMINATED
        asked = before.phase is MachinePhase.TERMINATING
        level = WARNING if refused or (reason in _WORRYING and not asked) else NORMAL
        self._recorder.event(after, level, reason, f"{after.phase.value}: {message}", kind=MACHINE)

    def ordered(self, waiting: Pod | MachineLease | None, machine: Machine) -> None:
        """A machine was ordered for a pod or a lease."""
        if waiting is not None:
            text = f"machine {machine.metadata.name} ({machine.spec.instance_type}) is ordered"
            self._skipped.pop(waiting.metadata.uid, None)
            self._recorder.event(waiting, NORMAL, "MachineOrdered", text, kind=_kind(waiting))

    def claimed(self, pod: Pod, machine: Machine) -> None:
        """A machine is a pod's."""
        self._skipped.pop(pod.metadata.uid, None)
        text = f"machine {machine.metadata.name} is the pod's alone"
        self._recorder.event(pod, NORMAL, "MachineClaimed", text, kind=POD)

    def launch_failed(self, waiting: Pod | MachineLease, machine: Machine, message: str) -> None:
        """The machine that was ordered for a pod or a lease cannot be had, or does not come up."""
        text = f"machine {machine.metadata.name}: {message}"
        self._recorder.event(waiting, WARNING, "MachineLaunchFailed", text, kind=_kind(waiting))

    def unhealthy(self, machine: Machine, message: str) -> None:
        """A silent machine is ended."""
        self._recorder.event(machine, WARNING, "Unhealthy", message, kind=MACHINE)

    def interrupted(self, machine: Machine, message: str) -> None:
        """The provider takes a machine away."""
        self._recorder.event(machine, WARNING, "InterruptionNotice", message, kind=MACHINE)

    def off(self, machine: Machine, instance: Instance) -> None:
        """The instance of a machine that is in service was found switched off."""
        text = f"instance {instance.id} is {instance.state.value}; it is switched on again"
        self._recorder.event(machine, WARNING, "SwitchedOff", text, kind=MACHINE)

    def braked(self, pool: NodePool, message: str) -> None:
        """So many machines of a pool are silent that none is ended."""
        self._recorder.event(pool, WARNING, "UnhealthyBrake", message, kind=NODEPOOL)

    def ejected(self, pod: Pod, machine: Machine, message: str) -> None:
        """The machine under a pod ends."""
        text = f"machine {machine.metadata.name} ends: {message}"
        self._recorder.event(pod, WARNING, "PodEjected", text, kind=POD)

    def skipped(self, reasons: Mapping[str, tuple[Pod | MachineLease, str]]) -> None:
        """Pods and leases get no machine now: each is reported when the reason is another one.

        Args:
            reasons: pods or leases and reasons, by UID; all of a pool.
        """
        for uid, (waiting, reason) in reasons.items():
            if self._skipped.get(uid) != reason:
                self._skipped[uid] = reason
                self._recorder.event(waiting, WARNING, "NoMachine", reason, kind=_kind(waiting))

    def prune(self, waits: Callable[[str], bool]) -> None:
        """Forget the refusals of pods and leases that do not wait.

        Args:
            waits: whether the pod or lease of a UID does.
        """
        self._skipped = {uid: why for uid, why in self._skipped.items() if waits(uid)}

    @property
    def refused(self) -> int:
        """How many pods and leases wait that a pass found no machine for."""
        return len(self._skipped)

    def terminating(self, pool: NodePool, message: str) -> None:
        """A pool is deleted that has machines."""
        self._recorder.event(pool, NORMAL, "Terminating", message, kind=NODEPOOL)

    def pool(self, pool: NodePool, reason: str, message: str) -> None:
        """A pool cannot be served."""
        self._recorder.event(pool, WARNING, reason, message, kind=NODEPOOL)


def _kind(waiting: Pod | MachineLease) -> AnyKind:
    return MACHINELEASE if isinstance(waiting, MachineLease) else POD
