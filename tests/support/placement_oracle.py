"""What rules about other pods demand, judged from objects alone: no cache, no kernels, no plugins.

Slow and plain on purpose. Selectors here are equalities, which is all that these worlds draw.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from grange.api.kinds import NODE, POD
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, PodAffinityTerm
from grange.api.meta import LabelSelector
from grange.api.pod_requests import allocatable, pod_request
from grange.base.errors import invariant
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, charged
from grange.scheduler.cycle import Assumed, Outcome
from grange.scheduler.service import Scheduler
from grange.sim.invariants import ObservedWrite

HOST = "kubernetes.io/hostname"


def chosen(selector: LabelSelector | None, pod: Pod) -> bool:
    """Whether a selector of equalities chooses the pod; all pods are in one namespace."""
    if selector is None:
        return False
    return all(
        pod.metadata.labels.get(key) == value for key, value in selector.match_labels.items()
    )


def near(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return ()
    return affinity.pod_affinity.required_during_scheduling_ignored_during_execution


def apart(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution


@dataclass
class Cluster:
    """Nodes by name, and the placed pods with the names of their nodes."""

    nodes: Mapping[str, Node]
    placed: list[tuple[Pod, str]]

    def __post_init__(self) -> None:
        self.placed = [pair for pair in self.placed if pair[1] in self.nodes]

    def value(self, node: str, key: str) -> str | None:
        return self.nodes[node].metadata.labels.get(key)

    def together(self, node: str, key: str) -> Iterable[Pod]:
        """The pods in the node's domain."""
        value = self.value(node, key)
        if value is None:
            return []
        return [pod for pod, where in self.placed if self.value(where, key) == value]

    def broken(self, pod: Pod, node: str) -> str:
        """Which rule a pod breaks on a node; empty when it breaks none."""
        for term in apart(pod):
            if any(
                chosen(term.label_selector, other)
                for other in self.together(node, term.topology_key)
            ):
                return f"wants none such in its {term.topology_key}"
        for other, where in self.placed:
            for term in apart(other):
                value = self.value(where, term.topology_key)
                same = value is not None and value == self.value(node, term.topology_key)
                if same and chosen(term.label_selector, pod):
                    return f"{other.metadata.name} wants none such in its {term.topology_key}"
        return self._alone(pod, node) or self._uneven(pod, node)

    def _alone(self, pod: Pod, node: str) -> str:
        terms = near(pod)
        if not terms:
            return ""
        if any(self.value(node, term.topology_key) is None for term in terms):
            return "its node lacks a label"
        # Pods outside all domains are in no pod's company, and do not keep others from being the first.
        company = [
            other
            for other, where in self.placed
            if all(chosen(term.label_selector, other) for term in terms)
            and any(self.value(where, term.topology_key) is not None for term in terms)
        ]
        if not company and all(chosen(term.label_selector, pod) for term in terms):
            return ""  # it is the first
        for term in terms:
            if not any(other in company for other in self.together(node, term.topology_key)):
                return f"has no company in its {term.topology_key}"
        return ""

    def _uneven(self, pod: Pod, node: str) -> str:
        for item in pod.spec.topology_spread_constraints:
            if item.when_unsatisfiable != "DoNotSchedule":
                continue
            counts: dict[str, int] = {}
            for name in self.nodes:
                value = self.value(name, item.topology_key)
                if value is not None:
                    counts.setdefault(value, 0)
            for other, where in self.placed:
                value = self.value(where, item.topology_key)
                staying = not other.metadata.deletion_timestamp
                if value is not None and staying and chosen(item.label_selector, other):
                    counts[value] += 1
            mine = self.value(node, item.topology_key)
            if mine is None:
                return f"its node has no {item.topology_key}"
            own = chosen(item.label_selector, pod)
            if counts[mine] + own - min(counts.values()) > item.max_skew:
                return f"{counts} over {item.topology_key} would be uneven at {mine}"
        return ""

    def room(self, pod: Pod, node: str) -> bool:
        """Whether its requests fit."""
        usage = IDLE
        for other, where in self.placed:
            if where == node:
                usage = charged(usage, pod_request(other.spec), ())
        offered = allocatable(self.nodes[node].status.allocatable)
        return resource_fit.fits(pod_request(pod.spec), offered, usage)

    def would_do(self, pod: Pod, node: str) -> bool:
        """Whether the pod may go to the node now."""
        return self.room(pod, node) and not self.broken(pod, node)


class Judge:
    """Stands behind a scheduler and judges each of its decisions by what it knew at that time.

    Attributes:
        judged: how many decisions there were.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._cache = scheduler.cache
        self._decide = scheduler.schedule_one.schedule_one
        self.judged = 0
        scheduler.schedule_one.schedule_one = self._run_one  # type: ignore[method-assign]  # it looks on

    def _run_one(self, now: float) -> Outcome | None:
        outcome = self._decide(now)
        if isinstance(outcome, Assumed):
            self.judged += 1
            self._judge(outcome)
        return outcome

    def _judge(self, placed: Assumed) -> None:
        entries = self._cache.snapshot().nodes
        nodes = {name: info.node for name, info in entries.items() if info.node is not None}
        pods = [
            (item.pod, name)
            for name, info in entries.items()
            for item in info.pods
            if item.uid != placed.uid
        ]
        cluster = Cluster(nodes, pods)
        pod, node = placed.info.pod, placed.node_name
        invariant(node in nodes, "a decision is for a node that is there", node=node)
        broken = cluster.broken(pod, node)
        invariant(not broken, "a decision keeps the rules", pod=str(pod.key), node=node, why=broken)
        fits = cluster.room(pod, node)
        invariant(fits, "a decision finds room", pod=str(pod.key), node=node)


class ApartOnHost:
    """No two pods are bound to one node while one of them refuses the other there."""

    def __init__(self) -> None:
        self._there: dict[str, dict[str, Pod]] = {}

    def see(self, change: ObservedWrite) -> None:
        """Look at the node that a pod was just bound to."""
        if change.concerns(NODE) and change.deleted:
            self._there.pop(change.document["metadata"]["name"], None)
        if not change.concerns(POD):
            return
        pod = msgspec.convert(change.document, Pod)
        there = self._there.setdefault(pod.spec.node_name, {})
        if change.deleted or not pod.spec.node_name:
            there.pop(change.uid, None)
            return
        if change.uid not in there:
            for other in there.values():
                invariant(
                    not self._refuses(pod, other) and not self._refuses(other, pod),
                    "pods that refuse each other are apart",
                    node=pod.spec.node_name,
                    pods=(pod.metadata.name, other.metadata.name),
                    revision=change.revision,
                )
        there[change.uid] = pod

    def _refuses(self, one: Pod, other: Pod) -> bool:
        return any(
            term.topology_key == HOST and chosen(term.label_selector, other) for term in apart(one)
        )
