"""What PackingNodeScaler decides, the slow way: no arrays, nothing remembered, everything counted each time.

It knows pods, hosts and options; gangs, limits and machines that boot are not its subject.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grange.api.kinds.node import Node, Taint, is_ready
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import Resources, allocatable, pod_request
from grange.machines.scaling.packing_options import PODS_MAX, PackedPool, option_labels
from grange.machines.scaling.packing_pods import PackedPod, PodRules, packed_pod, rules_of
from grange.placement import node_rules, taint_toleration
from grange.placement.podaffinity import PodSelector, Term
from grange.placement.spread import HOSTNAME, Constraint

KEYS = ("topology.kubernetes.io/zone",)
"""Labels that rules about other pods may name, apart from the host."""


@dataclass(frozen=True)
class Option:
    """A way to get a machine."""

    pool: str
    kind: str
    zone: str
    spot: bool
    price: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: tuple[int, int, int]


@dataclass
class Bin:
    """A node, or a machine to order with what it may become."""

    name: str
    options: list[Option]
    planned: bool = True
    pods: list[tuple[Resources, PodRules]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def domain(self, key: str) -> str | None:
        """Its value of a label, if it can only be one."""
        if key == HOSTNAME:
            return self.name
        values = {option.labels.get(key) for option in self.options}
        return values.pop() if len(values) == 1 else None


class Reference:
    """One packing.

    Args:
        pools: heaviest first.
        nodes: with their pods in ``running``.
        running: pods on nodes.
        waiting: pods to place.
    """

    def __init__(
        self,
        pools: Sequence[PackedPool],
        nodes: Sequence[Node],
        running: Sequence[Pod],
        waiting: Sequence[Pod],
    ) -> None:
        self.options = [option for pool in pools for option in _options(pool)]
        asking = [packed_pod(pod) for pod in waiting]
        self.waiting = sorted(asking, key=lambda pod: (_first(pod, asking), pod.order))
        self.every_rules = [rules for pod in self.waiting for rules in pod.steps]
        self.bins = [_bin(node) for node in sorted(nodes, key=lambda each: each.metadata.name)]
        for pod in running:
            for place in self.bins:
                if place.name == pod.spec.node_name:
                    place.pods.append((pod_request(pod.spec).resources, rules_of(pod)[-1]))
        self.unplaced: list[str] = []

    def pack(self) -> None:
        """Place all, a round at a time: again while that helps, then with one wish less."""
        steps = dict.fromkeys((pod.uid for pod in self.waiting), 0)
        queue = list(self.waiting)
        while queue:
            left = [pod for pod in queue if not self._place(pod, pod.steps[steps[pod.uid]])]
            if len(left) == len(queue):
                wishing = [pod for pod in left if steps[pod.uid] < len(pod.steps) - 1]
                for pod in wishing:
                    steps[pod.uid] += 1
                if not wishing:
                    break
            queue = left
        self.unplaced = [pod.name for pod in queue]

    def _place(self, pod: PackedPod, rules: PodRules) -> bool:
        followers = self._followers(rules)
        return bool(followers and self._put_first(pod, rules, followers)) or self._put_first(
            pod, rules, [pod.request]
        )

    def _followers(self, rules: PodRules) -> list[Resources]:
        """What must be on the pod's host with it, if it is the first of its like."""
        near = _near_host(rules)
        begins = (
            near
            and _selects(near, rules)
            and not any(_selects(near, other) for _, other in self._placed())
        )
        return [
            pod.request
            for pod in self.waiting
            if begins
            and any(_near_host(each) == near and _selects(near, each) for each in pod.steps)
        ]

    def _put_first(self, pod: PackedPod, rules: PodRules, requests: Sequence[Resources]) -> bool:
        for place in self.bins:
            options = self._left(place, requests, rules)
            if options and not (place.options[0].spot and not options[0].spot):
                self._put(place, options, pod, rules)
                return True
        for name in dict.fromkeys(option.pool for option in self.options):
            own = [option for option in self.options if option.pool == name]
            number = sum(place.planned for place in self.bins)
            place = Bin(f"/{number}", own)
            options = self._left(place, requests, rules)
            if options:
                self.bins.append(place)
                self._put(place, options, pod, rules)
                return True
        return False

    def _put(self, place: Bin, options: list[Option], pod: PackedPod, rules: PodRules) -> None:
        place.options = options
        place.pods.append((pod.request, rules))
        place.names.append(pod.name)

    def _left(self, place: Bin, more: Sequence[Resources], rules: PodRules) -> list[Option]:
        """What the bin can still become with the pod; empty if it cannot take it."""
        requests = [*(need for need, _ in place.pods), *more]
        need = (
            sum(each.cpu_milli for each in requests),
            sum(each.memory_bytes for each in requests),
            len(requests),
        )
        options = [
            option
            for option in place.options
            if all(a <= b for a, b in zip(need, option.room, strict=True))
            and node_rules.matches(rules.nodes, place.name, option.labels)
            and not taint_toleration.untolerated(option.taints, rules.tolerations)
            and not (
                rules.avoids
                and taint_toleration.count_intolerable_preferences(option.taints, rules.tolerations)
            )
        ]
        if not self._allows(rules, HOSTNAME, place.name):
            return []
        for key in KEYS:
            if self._involved(rules, key):
                options = self._narrowed(options, rules, key)
        return options

    def _narrowed(self, options: list[Option], rules: PodRules, key: str) -> list[Option]:
        domains = dict.fromkeys(option.labels.get(key) for option in options)
        allowed = [domain for domain in domains if self._allows(rules, key, domain)]
        if not allowed:
            return []
        best = min(allowed, key=lambda domain: self._crowd(rules, key, domain))
        return [option for option in options if option.labels.get(key) == best]

    # --- rules about other pods ------------------------------------------------------------------------

    def _placed(self) -> Iterator[tuple[Bin, PodRules]]:
        for place in self.bins:
            for _, rules in place.pods:
                yield place, rules

    def _number(self, selectors: Sequence[PodSelector], key: str, domain: str | None) -> int:
        return sum(
            domain is not None and place.domain(key) == domain and _selects(selectors, rules)
            for place, rules in self._placed()
        )

    def _allows(self, rules: PodRules, key: str, domain: str | None) -> bool:
        near = tuple(dict.fromkeys(term.selector for term in rules.terms.affinity))
        if any(term.key == key for term in rules.terms.affinity):
            nowhere = not any(
                _selects(near, other) and place.domain(key) is not None
                for place, other in self._placed()
            )
            begins = nowhere and _selects(near, rules)
            if domain is None or not (begins or self._number(near, key, domain)):
                return False
        for term in rules.terms.anti_affinity:
            if term.key == key and self._number((term.selector,), key, domain):
                return False
        for place, other in self._placed():
            for term in other.terms.anti_affinity:
                same = term.key == key and domain is not None and place.domain(key) == domain
                if same and _selects((term.selector,), rules):
                    return False
        return all(self._even(rules, item, domain) for item in rules.spread if item.key == key)

    def _even(self, rules: PodRules, constraint: Constraint, domain: str | None) -> bool:
        if domain is None:
            return False
        least = 0
        if constraint.key != HOSTNAME:
            places = [option for option in self.options if _suits(rules, "", option)] + [
                place.options[0]
                for place in self.bins
                if not place.planned and _suits(rules, place.name, place.options[0])
            ]
            domains = {option.labels.get(constraint.key) for option in places} - {None}
            least = min(
                (self._number((constraint.selector,), constraint.key, each) for each in domains),
                default=0,
            )
        number = self._number((constraint.selector,), constraint.key, domain)
        return number + constraint.of_itself - least <= constraint.max_skew

    def _crowd(self, rules: PodRules, key: str, domain: str | None) -> int:
        return sum(
            self._number((item.selector,), key, domain) for item in rules.spread if item.key == key
        )

    def _involved(self, rules: PodRules, key: str) -> bool:
        """Whether any rule about a label concerns the pod, as its owner or as one that is selected."""
        running = [rules for _, rules in self._placed()]
        anti: list[Term] = [
            term for each in (*self.every_rules, *running) for term in each.terms.anti_affinity
        ]
        own = (*rules.terms.affinity, *rules.terms.anti_affinity)
        if key in {*(term.key for term in own), *(item.key for item in rules.spread)}:
            return True
        if any(term.key == key and _selects((term.selector,), rules) for term in anti):
            return True
        for each in self.every_rules:
            near = tuple(term.selector for term in each.terms.affinity)
            if any(term.key == key for term in each.terms.affinity) and _selects(near, rules):
                return True
            if any(item.key == key and _selects((item.selector,), rules) for item in each.spread):
                return True
        return False


def _first(pod: PackedPod, pods: Sequence[PackedPod]) -> tuple[int, int, str, str]:
    """The order of the first pod of those that must be on one host with this one."""
    near = _near_host(pod.steps[0])
    if not (near and _selects(near, pod.steps[0])):
        return pod.order
    return min(
        other.order
        for other in pods
        if any(_near_host(each) == near and _selects(near, each) for each in other.steps)
    )


def _near_host(rules: PodRules) -> tuple[PodSelector, ...]:
    if all(term.key != HOSTNAME for term in rules.terms.affinity):
        return ()
    return tuple(dict.fromkeys(term.selector for term in rules.terms.affinity))


def _selects(selectors: Sequence[PodSelector], rules: PodRules) -> bool:
    return all(each.matches(rules.namespace, dict(rules.labels), {}) for each in selectors)


def _suits(rules: PodRules, name: str, option: Option) -> bool:
    return (
        node_rules.matches(rules.nodes, name, option.labels)
        and not taint_toleration.untolerated(option.taints, rules.tolerations)
        and not (
            rules.avoids
            and taint_toleration.count_intolerable_preferences(option.taints, rules.tolerations)
        )
    )


def _options(pool: PackedPool) -> list[Option]:
    spec = pool.pool.spec
    found = [
        (offering.price, kind, offering)
        for kind in pool.catalogue
        for offering in kind.offerings
        if offering.spot in {"Never": (False,), "Always": (True,)}.get(spec.spot, (False, True))
    ]
    found.sort(key=lambda each: (spec.spot == "Preferred" and not each[2].spot, each[0]))
    made = []
    for price, kind, offering in found:
        room = allocatable(kind.capacity)
        made.append(
            Option(
                pool.name,
                kind.name,
                offering.zone,
                offering.spot,
                f"{price}",
                option_labels(pool.pool, kind, offering),
                spec.template.taints,
                (room.cpu_milli, room.memory_bytes, room.pods or PODS_MAX),
            )
        )
    return made


def _bin(node: Node) -> Bin:
    room = allocatable(node.status.allocatable)
    assert is_ready(node)
    labels = {HOSTNAME: node.metadata.name, **node.metadata.labels}
    pods = room.pods
    option = Option(
        "",
        "",
        "",
        spot=False,
        price="",
        labels=labels,
        taints=node.spec.taints,
        room=(room.cpu_milli, room.memory_bytes, pods),
    )
    return Bin(node.metadata.name, [option], planned=False)
