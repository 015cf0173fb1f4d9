"""How pods of a Service are spread when they do not say: rather over hosts, and over zones.

kube-scheduler's system defaults: two preferences, by hostname with a ``maxSkew`` of 3 and by zone with
one of 5, for pods that state no constraint of their own and that some Service selects. The pods
that count are those that all these Services select. A node without one of the labels is not left
out. A profile may have other defaults (PodTopologySpreadArgs). Pods of a Grange ReplicationController are bound to a node each and need none of this.
"""

from collections.abc import Mapping

from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.selectors import IN, Requirement
from grange.placement.podaffinity import PodSelector
from grange.placement.spread import SYSTEM_DEFAULTS, Constraint, DefaultConstraint

ZONE = "topology.kubernetes.io/zone"


class DefaultSpread:
    """Knows the Services and says how their pods are spread."""

    def __init__(self) -> None:
        self._selectors: dict[str, dict[str, Mapping[str, str]]] = {}

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
        """The constraints of a pod that states none; none for a pod of no Service.

        Args:
            pod: the pod.
            defaults: those of its profile.
        """
        meta = pod.metadata
        if pod.spec.topology_spread_constraints or not defaults:
            return ()
        wanted: dict[str, str] = {}
        for selector in self._selectors.get(meta.namespace, {}).values():
            if all(meta.labels.get(key) == value for key, value in selector.items()):
                wanted.update(selector)
        if not wanted:
            return ()
        labels = tuple(Requirement(key, IN, (wanted[key],)) for key in sorted(wanted))
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
