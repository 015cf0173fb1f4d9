"""SchedulingGates: a pod with gates waits until they are removed."""

from grange.scheduler.clusterevents import Action, ClusterEvent, Registration, Subject
from grange.scheduler.framework import SUCCESS, Code, Plugin, Status
from grange.scheduler.podinfo import PodInfo


def _is_open(pod: PodInfo) -> Status:
    gates = [gate.get("name", "") for gate in pod.pod.spec.scheduling_gates]
    if not gates:
        return SUCCESS
    return Status(Code.UNRESOLVABLE, (f"waiting for scheduling gates: {', '.join(gates)}",))


PLUGIN = Plugin(
    "SchedulingGates",
    pre_enqueue=_is_open,
    events=(Registration(ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_GATES)),),
)
