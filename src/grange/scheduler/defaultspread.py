"""How replicas are spread by default: rather over hosts, and over zones.

kube-scheduler's system defaults: two preferences, by hostname with a ``maxSkew`` of 3 and by zone with
one of 5, for pods that state no constraint and that some Service selects or that a
ReplicaSet, StatefulSet or ReplicationController controls. The pods that count are those that all of
these select (``DefaultSelector`` of k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper). A node
without one of the labels is not left out. A profile may have other defaults (PodTopologySpreadArgs).
"""

from collections.abc import Mapping

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL, REPLICATIONCONTROLLER
from grange.api.kinds.service import Service
from grange.api.kinds.workloads import CoreReplicationController, Workload
from grange.api.meta import LabelSelector, ObjectMeta, controller_of
from grange.api.selectors import IN, Requirement
from grange.placement import podaffinity
from grange.placement.podaffinity import PodSelector
from grange.placement.spread import SYSTEM_DEFAULTS, Constraint, DefaultConstraint

_GRANGE = (REPLICATIONCONTROLLER.api_version, REPLICATIONCONTROLLER.kind)
_Selector = tuple[Requirement, ...]


class DefaultSpread:
    """The Services and workload controllers, and how the pods that they select are spread."""

    def __init__(self) -> None:
        self._selectors: dict[str, dict[str, Mapping[str, str]]] = {}
        self._workloads: dict[str, _Selector] = {}  # by UID

    def put_workload(self, workload: Workload | CoreReplicationController) -> bool:
        """A controller of pods appeared or changed; True if that may matter to its pods.

        Raises:
            SelectorError: its selector cannot be read.
        """
        selector = workload.spec.selector
        if isinstance(selector, LabelSelector):
            found = podaffinity.requirements(selector) or ()
        else:
            found = tuple(Requirement(key, IN, (value,)) for key, value in (selector or {}).items())
        before = self._workloads.get(workload.metadata.uid)
        self._workloads[workload.metadata.uid] = found
        return before != found

    def remove_workload(self, workload: Workload | CoreReplicationController) -> bool:
        """A controller of pods is gone; True if that may matter to its pods."""
        return self._workloads.pop(workload.metadata.uid, None) is not None

    def put(self, service: Service) -> bool:
        """A Service appeared or changed; True if that may matter to pods of its namespace."""
        meta, selector = service.metadata, service.spec.selector
        mine = self._selectors.setdefault(meta.namespace, {})
        before = mine.get(meta.name, {})
        if selector:
            mine[meta.name] = selector
        else:
            mine.pop(meta.name, None)
        return before != selector

    def remove(self, service: Service) -> bool:
        """A Service is gone; True if that may matter to pods of its namespace."""
        mine = self._selectors.get(service.metadata.namespace, {})
        gone = mine.pop(service.metadata.name, None)
        if not mine:
            self._selectors.pop(service.metadata.namespace, None)
        return gone is not None

    def of(
        self, pod: Pod, defaults: tuple[DefaultConstraint, ...] = SYSTEM_DEFAULTS
    ) -> tuple[Constraint, ...]:
        """The constraints of a pod that states none; none for a pod that nothing selects."""
        meta = pod.metadata
        if pod.spec.topology_spread_constraints or not defaults:
            return ()
        wanted: dict[str, str] = {}
        for selector in self._selectors.get(meta.namespace, {}).values():
            if all(meta.labels.get(key) == value for key, value in selector.items()):
                wanted.update(selector)
        labels = tuple(Requirement(key, IN, (wanted[key],)) for key in sorted(wanted))
        labels += tuple(item for item in self._of_controller(meta) if item not in labels)
        if not labels:
            return ()
        selected = PodSelector(frozenset({meta.namespace}), None, labels)
        return tuple(
            Constraint(
                item.key,
                hard=item.hard,
                max_skew=item.max_skew,
                selector=selected,
                of_itself=True,
                min_domains=1,
                honor_affinity=True,
                honor_taints=False,
                lenient=item.lenient,
            )
            for item in defaults
        )

    def _of_controller(self, meta: ObjectMeta) -> _Selector:
        owner = controller_of(meta)
        if owner is None:
            return ()
        if (owner.api_version, owner.kind) == _GRANGE:
            # What our controllers select follows from the labels that they give.
            mine = [(key, meta.labels.get(key)) for key in (NAME_LABEL, ID_LABEL)]
            return tuple(Requirement(key, IN, (value,)) for key, value in mine if value is not None)
        return self._workloads.get(owner.uid, ())
