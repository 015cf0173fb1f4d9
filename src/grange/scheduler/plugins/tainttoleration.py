"""TaintToleration: excludes nodes with taints that are not tolerated, prefers few of PreferNoSchedule."""

from collections.abc import Hashable, Sequence
from functools import partial

import msgspec

from grange.api.kinds.machine import DEDICATED_TAINT, STARTUP_TAINT
from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Toleration
from grange.placement import taint_toleration
from grange.scheduler.clusterevents import Action, ClusterEvent, Registration, Subject
from grange.scheduler.framework import Code, Normalise, Status
from grange.scheduler.node_plugin import TAINTS, NodeFilter, NodeScore
from grange.scheduler.plugin_explanation import Remedy, altered
from grange.scheduler.podinfo import PodInfo

_OURS = "grange.dev/"
# Taints that report the node's state: tolerating them would not help.
_STATES = {
    "node.kubernetes.io/not-ready": "Ready again",
    "node.kubernetes.io/unreachable": "reachable again",
    "node.kubernetes.io/memory-pressure": "out of memory pressure",
    "node.kubernetes.io/disk-pressure": "out of disk pressure",
    "node.kubernetes.io/pid-pressure": "out of PID pressure",
    "node.kubernetes.io/network-unavailable": "on the network",
    "node.kubernetes.io/unschedulable": "uncordoned",
    STARTUP_TAINT: "initialized",
}
_Tolerations = tuple[Toleration, ...]
_Taints = Sequence[Taint]


class TaintToleration(NodeFilter[_Tolerations, _Taints], NodeScore[_Tolerations, _Taints]):
    """Compares tolerations with taints."""

    name = "TaintToleration"
    attribute = TAINTS
    normalise = Normalise.BY_MAX_REVERSED
    weight = 3

    def demand(self, pod: PodInfo) -> _Tolerations:
        return pod.pod.spec.tolerations

    def applies(self, pod: PodInfo) -> bool:
        return True

    def signature(self, pod: PodInfo) -> Hashable:
        """All of the tolerations but for how long."""
        return tuple(
            (item.key, item.operator, item.value, item.effect) for item in self.demand(pod)
        )

    def allows(self, demand: _Tolerations, value: _Taints) -> bool:
        return not value or taint_toleration.first_untolerated(value, demand) is None

    def refusal(self, demand: _Tolerations, value: _Taints) -> Status:
        """One reason for all taints, as in kube-scheduler; those of Grange itself are named."""
        taint, reason = (
            taint_toleration.first_untolerated(value, demand),
            "node(s) had untolerated taint(s)",
        )
        if taint is not None and taint.key.startswith(_OURS):
            reason = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        return Status(Code.UNRESOLVABLE, (reason,))

    def score_value(self, demand: _Tolerations, value: _Taints) -> int:
        return taint_toleration.count_intolerable_preferences(value, demand) if value else 0

    def events(self) -> tuple[Registration, ...]:
        tolerates = ClusterEvent(Subject.UNSCHEDULED_POD, Action.POD_TOLERATION)
        return (*super().events(), Registration(tolerates))

    def obstacles(self, demand: _Tolerations, value: _Taints) -> list[str]:
        return [f"taint {_shown(item)}" for item in taint_toleration.untolerated(value, demand)]

    def remedies(self, demand: _Tolerations, value: _Taints) -> list[Remedy]:
        """Tolerate them; where a taint reports the node's state, wait for a better one."""
        found = taint_toleration.untolerated(value, demand)
        states = dict.fromkeys(_STATES[item.key] for item in found if item.key in _STATES)
        others = [item for item in found if item.key not in _STATES]
        if any(item.key == DEDICATED_TAINT for item in others):
            return []  # it would take the machine of another pod
        if not others:
            return [Remedy.of_cluster(f"they are {' and '.join(states)}", 0.65)]
        if states:
            return []  # two changes of different kinds; the obstacles suffice
        word = "taint" if len(others) == 1 else "taints"
        text = f"it tolerates {word} {' and '.join(_shown(item) for item in others)}"
        return [Remedy.of_pod(text, 0.5 + 0.1 * len(others), partial(_tolerating, items=others))]


def _shown(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _tolerating(info: PodInfo, items: Sequence[Taint]) -> PodInfo:
    more = tuple(Toleration(key=item.key, value=item.value, effect=item.effect) for item in items)
    spec = info.pod.spec
    spec = msgspec.structs.replace(spec, tolerations=(*spec.tolerations, *more))
    return altered(info, pod=msgspec.structs.replace(info.pod, spec=spec))


PLUGIN = TaintToleration().plugin()
