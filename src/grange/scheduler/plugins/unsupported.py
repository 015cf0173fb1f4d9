"""Unsupported: pods whose placement rules this scheduler does not know wait, and say why.

Required pod affinity and anti-affinity and hard topology spread are promises about where a pod runs
beside others. Placing such a pod without them would break the promise silently.
"""

from grange.api.kinds.pod import PodSpec
from grange.scheduler.framework import PASS, Code, CycleState, Plugin, PreFilterResult, Status
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


def _rules(spec: PodSpec) -> list[str]:
    found = []
    if spec.affinity is not None:
        near, far = spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
        if near is not None and near.required_during_scheduling_ignored_during_execution:
            found.append("required pod affinity")
        if far is not None and far.required_during_scheduling_ignored_during_execution:
            found.append("required pod anti-affinity")
    if any(item.when_unsatisfiable == "DoNotSchedule" for item in spec.topology_spread_constraints):
        found.append("topology spread with DoNotSchedule")
    return found


class _Unsupported:
    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Reject what cannot be honoured."""
        spec = pod.pod.spec
        if spec.affinity is None and not spec.topology_spread_constraints:
            return PASS
        found = _rules(spec)
        if not found:
            return PASS
        reason = f"this scheduler does not support {' and '.join(found)} yet"
        return PreFilterResult(Status(Code.UNRESOLVABLE, (reason,)))


PLUGIN = Plugin("Unsupported", pre_filter=_Unsupported())
