"""How long a service may stay short once nothing is broken any more.

A simulation that ends well may still have lost minutes on the way: everybody waits, and at some time
a resync repairs it. ``ServicesRecover`` bounds that.

A service is *short* while fewer of its pods are ready than it can have. It can have ``replicas`` (while
a rollout is under way: ``replicas`` less ``maxUnavailable``), except those that cannot be there: pods
whose program has ended (restart backoff), pods that no node has room for, pods on nodes that are not
Ready, and, with ``OnePerNode``, those for which no eligible node is free (one that a terminating pod
still holds is not). Time counts from when it became short, from the last trouble, from the last change
of its spec, or of what a node is (its Lease may have had to expire for that), whatever is latest.
"""

import msgspec

from grange.api import selectors
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER, node as nodes, pod as pods
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import controller_of
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.sim.invariants import ObservedWrite
from grange.sim.trouble import Trouble

BOUND_S = 10.0
_ROLLING = frozenset({"Progressing", "Paused", "Waiting", "Failed", "RollingBack"})
_FINISHED = frozenset({"Succeeded", "Failed"})


class ServicesRecover:
    """No service stays short for longer than a bound while nothing is broken.

    Args:
        trouble: what is broken.
        clock: the true time.

    Attributes:
        allowances: what else may take time in this world: seconds by what it is; all are added to
            ``BOUND_S``. Each names something that cannot be sped up.
        judges: whether anything is judged; a world without agents runs no pods.
        longest_s: the longest that a service was short so far, with nothing broken.
    """

    def __init__(self, trouble: Trouble, clock: Clock) -> None:
        self.allowances: dict[str, float] = {}
        self.judges = True
        self.longest_s = 0.0
        self._trouble = trouble
        self._clock = clock
        self._services: dict[str, ReplicationController] = {}
        self._specs: dict[str, tuple[object, ...]] = {}
        self._changed_at: dict[str, float] = {}
        self._pods: dict[str, dict[str, Pod]] = {}  # by uid of the owner
        self._nodes: dict[str, Node] = {}
        self._ready: set[str] = set()  # nodes, and among them those that take pods
        self._open: dict[str, Node] = {}
        self._nodes_changed_at = 0.0
        self._short: dict[str, tuple[float, str]] = {}  # since when, and what is missing

    def see(self, change: ObservedWrite) -> None:
        """Take note of a change; judge those that were short until now, and those that are."""
        self.check()
        if change.concerns(REPLICATIONCONTROLLER):
            self._see_service(change)
        elif change.concerns(NODE):
            self._see_node(change)
        elif change.concerns(POD):
            self._see_pod(change)

    def check(self) -> None:
        """Judge what is short now.

        Raises:
            InvariantError: a service has been for too long.
        """
        over_at, now = self._trouble.over_at, self._clock.monotonic()
        if over_at is None or not self._short or not self.judges:
            return
        bound_s = BOUND_S + sum(self.allowances.values())
        for uid, (since, missing) in self._short.items():
            start = max(since, over_at, self._nodes_changed_at, self._changed_at[uid])
            self.longest_s = max(self.longest_s, now - start)
            invariant(
                now - start <= bound_s,
                "a service is not short for long while nothing is broken",
                service=self._services[uid].metadata.name,
                missing=missing,
                since=round(start, 3),
                now=round(now, 3),
                bound_s=bound_s,
                allowances=self.allowances,
            )

    def _see_service(self, change: ObservedWrite) -> None:
        uid = change.uid
        if change.deleted:
            for known in (self._services, self._changed_at, self._specs, self._short):
                known.pop(uid, None)
            return
        found = msgspec.convert(change.document, ReplicationController)
        self._services[uid] = found
        meta = found.metadata
        asked = (meta.generation, sorted(drained_nodes(found)), found.spec.replicas)
        if self._specs.get(uid) != asked:
            self._specs[uid] = asked
            self._changed_at[uid] = self._clock.monotonic()
        self._judge(uid)

    def _see_node(self, change: ObservedWrite) -> None:
        name = change.document["metadata"]["name"]
        before = self._nodes.pop(name, None)
        node = None if change.deleted else msgspec.convert(change.document, Node)
        self._ready.discard(name)
        self._open.pop(name, None)
        if node is not None:
            self._nodes[name] = node
            if nodes.is_ready(node):
                self._ready.add(name)
                if _takes_pods(node):
                    self._open[name] = node
        if _facts(before) != _facts(node):
            self._nodes_changed_at = self._clock.monotonic()
            for uid in self._services:
                self._judge(uid)

    def _see_pod(self, change: ObservedWrite) -> None:
        pod = msgspec.convert(change.document, Pod)
        owner = controller_of(pod.metadata)
        for uid, owned in self._pods.items():
            if owned.pop(change.uid, None) is not None and uid in self._services:
                self._judge(uid)
        if owner is None:
            return
        if not change.deleted:
            self._pods.setdefault(owner.uid, {})[change.uid] = pod
        if owner.uid in self._services:
            self._judge(owner.uid)

    def _judge(self, uid: str) -> None:
        missing = self._missing(self._services[uid], [*self._pods.get(uid, {}).values()])
        if missing:
            since, _ = self._short.get(uid, (self._clock.monotonic(), ""))
            self._short[uid] = since, missing
        else:
            self._short.pop(uid, None)

    def _missing(self, service: ReplicationController, owned: list[Pod]) -> str:
        """What a service lacks that it could have, in words; empty if nothing."""
        spec, meta = service.spec, service.metadata
        if spec.paused or meta.deletion_timestamp:
            return ""
        wanted = spec.replicas
        rollout = service.status.rollout
        if rollout is not None and rollout.phase in _ROLLING:
            wanted -= _share(spec.rollout.max_unavailable, wanted)
            if not wanted - spec.replicas and not _share(spec.rollout.max_surge, wanted, up=True):
                wanted -= 1  # a percentage that rounds down to zero, without room, allows one
        active = [pod for pod in owned if not pod.metadata.deletion_timestamp]
        ready = [pod for pod in active if pods.is_ready(pod) and self._is_up(pod.spec.node_name)]
        if len(ready) >= wanted:
            return ""  # as of most writes: which nodes are eligible does not matter
        helpless = [pod for pod in active if pod not in ready and self._is_helpless(pod)]
        possible = wanted
        if spec.placement == "OnePerNode":
            held = {pod.spec.node_name for pod in owned if pod.metadata.deletion_timestamp}
            possible = len(self._eligible(service) - held)
            helpless = [pod for pod in helpless if self._is_up(pod.spec.node_name)]
        elif not self._eligible(service):
            possible = 0
        have = len(ready) + len(helpless)
        if have >= min(wanted, possible):
            return ""
        return f"{len(ready)} ready, {len(helpless)} helpless, of {min(wanted, possible)} possible"

    def _is_up(self, node_name: str) -> bool:
        return node_name in self._ready

    def _is_helpless(self, pod: Pod) -> bool:
        """Whether only time, its program or its node can make it ready."""
        if pod.status.phase in _FINISHED:
            return True
        if not pod.spec.node_name:
            return pods.is_unschedulable(pod)
        ended = any(
            status.restart_count or status.state.terminated or status.last_state.terminated
            for status in pod.status.container_statuses
        )
        return ended or not self._is_up(pod.spec.node_name)

    def _eligible(self, service: ReplicationController) -> set[str]:
        labels = selectors.Labels.of(service.spec.node_selector)
        left = drained_nodes(service)
        return {
            name
            for name, node in self._open.items()
            if name not in left and labels.matches(node.metadata.labels)
        }


def _takes_pods(node: Node) -> bool:
    return not node.spec.unschedulable and all(
        taint.effect == "PreferNoSchedule" for taint in node.spec.taints
    )


def _facts(node: Node | None) -> tuple[object, ...]:
    if node is None:
        return ()
    taints = sorted((taint.key, taint.effect) for taint in node.spec.taints)
    return nodes.is_ready(node), node.spec.unschedulable, taints, node.metadata.labels


def _share(value: int | str, replicas: int, *, up: bool = False) -> int:
    if isinstance(value, int):
        return value
    exact = int(value.removesuffix("%")) * replicas
    return -(-exact // 100) if up else exact // 100
