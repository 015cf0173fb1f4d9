"""What a waiting pod asks of a shared machine, from everything it would like to what it must have.

Preferences count as demands at first and are dropped one at a time when the pod fits nowhere, in Karpenter's
order: preferred pod affinity, preferred pod anti-affinity, preferred node affinity, each the heaviest
first, then spread constraints that need not hold, then taints that are better avoided.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from grange.api.kinds.machine import CAPACITY_TYPE_LABEL, NODE_POOL_LABEL, ON_DEMAND, SPOT
from grange.api.kinds.nodepool import SPOT_ALWAYS, SPOT_ANNOTATION, SPOT_NEVER
from grange.api.kinds.pod import FINISHED, Pod, Toleration, is_unschedulable
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.meta import controller_of
from grange.api.pod_requests import Resources, pod_request
from grange.api.quantity import QuantityError
from grange.api.selectors import SelectorError
from grange.machines.scaling.pod_needs import SPOT_POLICIES, UnusableNeed
from grange.placement import node_rules, podaffinity, spread
from grange.placement.node_rules import NodeRules, NodeTerm
from grange.placement.podaffinity import Term, Terms
from grange.placement.ports_and_disks import HostPort, host_ports
from grange.placement.spread import Constraint

_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_MARKETS = {SPOT_NEVER: ON_DEMAND, SPOT_ALWAYS: SPOT}


class PodRules(msgspec.Struct, frozen=True, cache_hash=True):
    """Where a pod may run; pods of equal rules may run in the same places.

    Attributes:
        namespace, labels: of the pod, by which others select it; labels sorted.
        nodes: which nodes; only what must hold.
        tolerations: of taints.
        terms: which pods must be near and must not; no preferences.
        spread: constraints that must hold.
        ports: of the host.
        avoids: taints that are better avoided (PreferNoSchedule) keep it away, too.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...]
    nodes: NodeRules
    tolerations: tuple[Toleration, ...]
    terms: Terms
    spread: tuple[Constraint, ...]
    ports: tuple[HostPort, ...]
    avoids: bool = False


@dataclass(frozen=True, slots=True)
class PackedPod:
    """A pod that waits for a shared machine.

    Attributes:
        name: ``namespace/name``.
        uid: of the pod.
        priority: of the pod.
        created: RFC 3339.
        request: what it requests.
        steps: its rules, all preferences first; each has one preference less than the one before.
        group: ``namespace/name`` of its PodGroup; empty for none.
    """

    name: str
    uid: str
    priority: int
    created: str
    request: Resources
    steps: tuple[PodRules, ...]
    group: str = ""

    @property
    def order(self) -> tuple[int, int, str, str]:
        """The largest first, then the oldest: large ones find a place less easily."""
        return (-self.request.cpu_milli, -self.request.memory_bytes, self.created, self.uid)


def waits_for_machine(pod: Pod) -> bool:
    """Whether the scheduler has found no node for the pod, nor pods to preempt for it."""
    if pod.spec.scheduling_gates or pod.status.nominated_node_name:
        return False
    if pod.metadata.deletion_timestamp is not None or pod.status.phase not in ("", "Pending"):
        return False
    return is_unschedulable(pod)


def occupies(pod: Pod) -> str:
    """Name of the node of which a pod uses or will use a part; empty for none."""
    if pod.status.phase in FINISHED:
        return ""
    return pod.spec.node_name or pod.status.nominated_node_name


def is_daemon(pod: Pod) -> bool:
    """Whether a pod belongs to its node and ends with it."""
    owner = controller_of(pod.metadata)
    kind = "" if owner is None else owner.kind
    return kind in ("DaemonSet", "Node") or _MIRROR_ANNOTATION in pod.metadata.annotations


def selected_pool(pod: Pod) -> str:
    """The pool that a pod's node selector names; empty for none."""
    return pod.spec.node_selector.get(NODE_POOL_LABEL, "")


def packed_pod(pod: Pod) -> PackedPod:
    """What a pod asks.

    Raises:
        UnusableNeed: a field has a value that cannot be understood.
    """
    try:
        request = pod_request(pod.spec).resources
        steps = rules_of(pod)
    except (QuantityError, SelectorError) as error:
        raise UnusableNeed(str(error)) from error
    group = pod.metadata.labels.get(GROUP_LABEL, "")
    return PackedPod(
        name=str(pod.key),
        uid=pod.metadata.uid,
        priority=pod.spec.priority,
        created=pod.metadata.creation_timestamp or "",
        request=request,
        steps=steps,
        group=f"{pod.metadata.namespace}/{group}" if group else "",
    )


def rules_of(pod: Pod) -> tuple[PodRules, ...]:
    """A pod's rules, all preferences first.

    Raises:
        SelectorError: a selector cannot be evaluated.
        UnusableNeed: an annotation has a value that is not known.
    """
    terms, constraints = podaffinity.of_pod(pod), spread.of_pod(pod)
    market = _market(pod)
    nodes = node_rules.of_pod(pod.spec)
    if market:
        nodes = replace(nodes, selector=(*nodes.selector, (CAPACITY_TYPE_LABEL, market)))
    near = sorted((term for term in terms.preferred if term.weight > 0), key=_lightest_first)
    far = sorted((term for term in terms.preferred if term.weight < 0), key=_lightest_first)
    liked = sorted(nodes.preferred, key=lambda item: item.weight)
    even = [item for item in constraints if not item.hard]

    def current(*, avoids: bool = True) -> PodRules:
        return PodRules(
            pod.metadata.namespace,
            tuple(sorted(pod.metadata.labels.items())),
            _with_preference(nodes, liked[-1].term) if liked else replace(nodes, preferred=()),
            pod.spec.tolerations,
            Terms((*terms.affinity, *near), (*terms.anti_affinity, *far)),
            (*(item for item in constraints if item.hard), *even),
            host_ports(pod.spec),
            avoids,
        )

    steps = [current()]
    preferences: tuple[list[object], ...] = (near, far, liked, even)  # type: ignore[assignment]  # only popped from
    for preference in preferences:
        while preference:
            preference.pop()
            steps.append(current())
    return (*steps, current(avoids=False))


def with_domain(rules: PodRules, key: str, value: str) -> PodRules:
    """The rules of a pod that must also be in a domain."""
    nodes = replace(rules.nodes, selector=(*rules.nodes.selector, (key, value)))
    return msgspec.structs.replace(rules, nodes=nodes)


def _market(pod: Pod) -> str:
    policy = pod.metadata.annotations.get(SPOT_ANNOTATION, "")
    if policy and policy not in SPOT_POLICIES:
        raise UnusableNeed(
            f"metadata.annotations[{SPOT_ANNOTATION}]: {policy!r} is none of "
            f"{', '.join(SPOT_POLICIES)}"
        )
    return _MARKETS.get(policy, "")


def _with_preference(nodes: NodeRules, term: NodeTerm) -> NodeRules:
    """The rules with a preferred term that must hold."""
    required: Sequence[NodeTerm] = (NodeTerm(),) if nodes.required is None else nodes.required
    both = tuple(
        NodeTerm((*each.labels, *term.labels), (*each.names, *term.names))
        for each in required
        if nodes.required is None or each.labels or each.names  # an empty term matches nothing
    )
    return replace(nodes, required=both, preferred=())


def _lightest_first(term: Term) -> int:
    return abs(term.weight)
