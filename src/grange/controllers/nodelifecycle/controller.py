"""The shell of the node lifecycle controller: nodes judged and tainted by name, pods evicted by key."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from grange.api import timestamps
from grange.api.kinds import LEASE, NODE, POD
from grange.api.kinds.lease import NODE_LEASES, Lease
from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import Pod, is_disruption_target, is_finished
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.backoff import TokenBucket
from grange.base.tasks import Nursery
from grange.controllers.nodelifecycle import (
    disruption_target,
    eviction,
    node_ready_condition,
    node_taints,
    pod_readiness,
    podgc,
)
from grange.controllers.nodelifecycle.config import NodeLifecycleConfig
from grange.controllers.nodelifecycle.node_health import Monitor, NodeHealth
from grange.placement.taint_toleration import NO_EXECUTE
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

NAME = "nodelifecycle"

_BY_NODE = "nodelifecycle/node"  # pods by the node they are bound to
_AGAIN_S = 1.0  # after losing a race whose winner's news is on its way
_BREATH_S = 0.01  # no two looks at the pods are closer together
_UNHEALTHY = frozenset({NodeHealth.SILENT, NodeHealth.NOT_READY})


class NodeLifecycle:
    """Watches over nodes; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: thresholds.
    """

    def __init__(self, deps: Deps, config: NodeLifecycleConfig | None = None) -> None:
        self._config = config or NodeLifecycleConfig()
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log.bind(controller=NAME)
        self._recorder = Recorder(
            deps.client,
            "node-controller",
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._monitor = Monitor(
            grace_s=self._config.grace_s,
            clock_gap_s=self._config.clock_gap_s,
            disruption_share=self._config.disruption_share,
        )
        self._bucket = TokenBucket(
            rate_per_s=self._config.evictions_per_s, burst=self._config.burst
        )
        self._turns: dict[str, float] = {}  # when an unhealthy node may be tainted NoExecute
        self._tainted: dict[str, tuple[tuple[tuple[str, str], ...], float]] = {}
        self._withdrawn: set[str] = set()  # unhealthy nodes whose pods are set not Ready
        self._orphans = podgc.Orphans(self._config.orphan_grace_s)
        self._node_lost = asyncio.Event()
        self._nodes = deps.informers.informer(NODE)
        self._pods = deps.informers.informer(POD)
        self._leases = deps.informers.informer(LEASE, namespace=NODE_LEASES)
        self._pods.store.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,))
        self.judging = Controller(
            f"{NAME}-nodes",
            self.judge,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self.evicting = Controller(
            f"{NAME}-evictions",
            self.evict,
            workers=self._config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._leases.add_handler(self._beat, lambda _, new: self._beat(new))
        self._nodes.add_handler(self._node_added, lambda _, new: self._node_seen(new), self._lost)
        self._pods.add_handler(self._pod_seen, self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in (self._nodes, self._pods, self._leases):
            await informer.synced.wait()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name=f"{NAME} events")
            nursery.start(self._watch_hearts(), name=f"{NAME} monitor")
            nursery.start(self._collect_garbage(), name=f"{NAME} pod gc")
            nursery.start(self.judging.run(), name=f"{NAME} nodes")
            nursery.start(self.evicting.run(), name=f"{NAME} evictions")

    # --- news ---------------------------------------------------------------------------------

    def _beat(self, lease: Lease) -> None:
        marker = f"{lease.spec.renew_time} {lease.spec.holder_identity}"
        self._monitor.beat(lease.metadata.name, marker, self._clock.monotonic())

    def _node_added(self, node: Node) -> None:
        self._node_seen(node)
        for pod in self._pods.store.by_index(_BY_NODE, node.metadata.name):
            if is_disruption_target(pod):
                self.evicting.enqueue(pod.key)

    def _node_seen(self, node: Node) -> None:
        name = node.metadata.name
        evicting = eviction.evicting(node.spec.taints)
        if evicting != self._tainted.get(name, ((), 0.0))[0]:
            if evicting:
                self._tainted[name] = evicting, self._clock.monotonic()
            else:
                self._tainted.pop(name, None)
            for pod in self._pods.store.by_index(_BY_NODE, name):
                self.evicting.enqueue(pod.key)
        if self._needs_judging(node):
            self.judging.enqueue(node.key)

    def _lost(self, node: Node) -> None:
        name = node.metadata.name
        self._monitor.forget(name)
        self._turns.pop(name, None)
        self._tainted.pop(name, None)
        self._withdrawn.discard(name)
        self._node_lost.set()

    def _pod_seen(self, pod: Pod) -> None:
        if pod.spec.node_name in self._tainted or is_disruption_target(pod):
            self.evicting.enqueue(pod.key)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        is_new_mark = is_disruption_target(new) and not is_disruption_target(old)
        # On a tainted node the mark is most likely our own, and the deletion is under way.
        if (is_new_mark and new.spec.node_name not in self._tainted) or (
            (old.spec.node_name, old.spec.tolerations) != (new.spec.node_name, new.spec.tolerations)
        ):
            self._pod_seen(new)

    # --- nodes --------------------------------------------------------------------------------

    async def _watch_hearts(self) -> None:
        while True:
            now = self._clock.monotonic()
            was = self._monitor.disrupted
            if self._monitor.tick(self._nodes.store, now):
                self._log.warning("heartbeats not watched for a while: nodes get a fresh grace")
            if was != self._monitor.disrupted:
                self._report_disruption()
            for node in self._nodes.store.list():
                if self._needs_judging(node):
                    self.judging.enqueue(node.key)
                else:
                    self._withdrawn.discard(node.metadata.name)
            await self._clock.sleep(self._config.period_s)

    def _report_disruption(self) -> None:
        if self._monitor.disrupted:
            self._log.error("too many nodes are unhealthy at once: nothing is evicted")
        else:
            self._log.info("enough nodes are healthy again: evictions go on")

    def _needs_judging(self, node: Node) -> bool:
        """Whether the node's condition and taints may not be what they should be."""
        health = self._monitor.health(node, self._clock.monotonic())
        return (
            health in _UNHEALTHY
            or any(taint.key in node_taints.OURS for taint in node.spec.taints)
            or node_taints.with_pressures(node, node.spec.taints, now="") != node.spec.taints
        )

    async def judge(self, key: ObjectKey) -> Result:
        """Bring one node's Ready condition and taints up to date.

        Raises:
            ApiError: a write failed; to be tried again.
        """
        node = self._nodes.store.get(key)
        if node is None:
            return Done()
        health = self._monitor.health(node, self._clock.monotonic())
        try:
            if health is NodeHealth.SILENT and not node_ready_condition.is_unknown(node):
                if not await self._is_silent(node):
                    return Done()
                node = await self._mark_unknown(node)
            wait_s = await self._taint(node, health)
            if not await self._withdraw_readiness(node, health):
                wait_s = min(wait_s or _AGAIN_S, _AGAIN_S)
        except NotFound:
            return Done()
        return Done() if wait_s is None else Requeue(wait_s)

    async def _withdraw_readiness(self, node: Node, health: NodeHealth) -> bool:
        """Set the pods of a node that became unhealthy not Ready, once; whether that is done."""
        name = node.metadata.name
        if health not in _UNHEALTHY:
            self._withdrawn.discard(name)
            return True
        if self._monitor.disrupted or name in self._withdrawn:
            return True
        is_done = True
        for pod in self._pods.store.by_index(_BY_NODE, name):
            if pod_readiness.is_shown_ready(pod):
                patch = pod_readiness.withdrawal(pod, self._clock.now())
                is_done = await self._write_mark(pod, patch) is not None and is_done
        if is_done:
            self._withdrawn.add(name)
        return is_done

    async def _is_silent(self, node: Node) -> bool:
        """Whether the server has no newer heartbeat of the node either: a cache may lag."""
        try:
            self._beat(await self._client.get(LEASE, node.metadata.name, NODE_LEASES))
        except NotFound:
            return True
        return self._monitor.health(node, self._clock.monotonic()) is NodeHealth.SILENT

    async def _mark_unknown(self, node: Node) -> Node:
        name, patch = node.metadata.name, node_ready_condition.unknown(node, self._clock.now())
        marked = await self._client.patch(
            NODE, name, patch=patch, type="strategic", subresource="status"
        )
        self._log.warning("node is silent", node=name, grace_s=self._config.grace_s)
        message = f"Node {name} has sent no heartbeat for {self._config.grace_s:g} s"
        self._recorder.event(node, WARNING, "NodeNotReady", message, kind=NODE)
        return marked

    async def _taint(self, node: Node, health: NodeHealth) -> float | None:
        """Put taints in order; seconds until a NoExecute taint may be put on, if one must wait."""
        meta = node.metadata
        held = node.spec.taints
        wait_s = self._turn(node, health)
        now = timestamps.rfc3339(self._clock.now())
        wanted = node_taints.wanted(held, health, may_execute=wait_s == 0.0, now=now)
        if self._monitor.disrupted:
            wanted = node_taints.lifted(wanted)
        wanted = node_taints.with_pressures(node, wanted, now=now)
        if wanted != held:
            patch = {
                "metadata": preconditions(meta),
                "spec": {"taints": [msgspec.to_builtins(taint) for taint in wanted]},
            }
            await self._client.patch(NODE, meta.name, patch=patch)
            self._log.info("node tainted", node=meta.name, taints=_words(wanted))
        return wait_s or None

    def _turn(self, node: Node, health: NodeHealth) -> float | None:
        """Seconds until the node may be tainted NoExecute; None when it need not be."""
        name = node.metadata.name
        if health not in _UNHEALTHY or self._monitor.disrupted:
            self._turns.pop(name, None)
            return None
        if not node_taints.wants_execute(node.spec.taints, health):
            return None
        now = self._clock.monotonic()
        if name not in self._turns:
            self._turns[name] = now + self._bucket.reserve(now)
        return max(0.0, self._turns[name] - now)

    # --- pods ---------------------------------------------------------------------------------

    async def evict(self, key: ObjectKey) -> Result:
        """Delete one pod if its time on a tainted node is over, else see that it is not marked.

        Raises:
            ApiError: a write failed; to be tried again.
        """
        pod = self._pods.store.get(key)
        if pod is None or pod.metadata.deletion_timestamp:
            return Done()
        node = self._nodes.store.get(ObjectKey("", pod.spec.node_name))
        if node is None and disruption_target.is_ours(pod):
            return Done()  # it is for pod gc, or the node comes back
        wait_s = None if node is None else self._stay_s(pod, node)
        if node is None or wait_s is None or wait_s > 0:
            return await self._stay(pod, wait_s)
        why = f"Deleted from node {node.metadata.name}: {_words(node.spec.taints)}"
        if not await self._mark_and_delete(pod, disruption_target.BY_TAINT, why):
            return Requeue(_AGAIN_S)  # gone or changed: its news is on its way
        self._recorder.event(pod, NORMAL, "TaintManagerEviction", why, kind=POD)
        self._log.info("pod evicted", pod=pod.key, node=node.metadata.name)
        return Done()

    def _stay_s(self, pod: Pod, node: Node) -> float | None:
        """Seconds until taints evict the pod; None when none does, not positive when it is time."""
        tainted = self._tainted.get(node.metadata.name)
        if tainted is None:
            return None
        held = node.spec.taints
        if self._monitor.disrupted and eviction.is_only_health(held):
            return self._config.period_s
        stay_s = eviction.stay_s(
            held, pod.spec.tolerations, default_s=self._config.default_toleration_s
        )
        return None if stay_s is None else tainted[1] + stay_s - self._clock.monotonic()

    async def _stay(self, pod: Pod, wait_s: float | None) -> Result:
        """Take off a mark whose reason is gone, so that a deletion under it is refused from now on.

        Args:
            pod: which is not to be evicted now.
            wait_s: look again after so many seconds; None for no reason to.
        """
        if is_disruption_target(pod):
            now, left_s = self._clock.now(), 0.0
            if not disruption_target.is_ours(pod):  # its deletion follows, or is under way
                left_s = disruption_target.stale_in_s(pod, now, self._config.stale_mark_s)
            if left_s > 0:
                return Requeue(left_s if wait_s is None else min(left_s, wait_s))
            patch = disruption_target.unmark_patch(pod, now)
            if await self._write_mark(pod, patch) is None:
                return Requeue(_AGAIN_S)
            self._log.info("pod is not evicted any more", pod=pod.key)
        return Done() if wait_s is None else Requeue(wait_s)

    async def _mark_and_delete(
        self, pod: Pod, reason: str, why: str, *, grace_period_s: int | None = None
    ) -> bool:
        """Delete a pod at a version that has our mark; False if it is gone or has changed."""
        marked: Pod | None = pod
        if not disruption_target.is_ours(pod):
            patch = disruption_target.mark_patch(pod, reason, why, self._clock.now())
            marked = await self._write_mark(pod, patch)
        return marked is not None and await self._delete(marked, grace_period_s=grace_period_s)

    async def _write_mark(self, pod: Pod, patch: Document) -> Pod | None:
        """The pod as it is now; None if it is gone or has changed."""
        meta = pod.metadata
        try:
            return await self._client.patch(
                POD, meta.name, meta.namespace, patch=patch, type="strategic", subresource="status"
            )
        except (NotFound, Conflict):
            return None

    async def _collect_garbage(self) -> None:
        while True:
            self._node_lost.clear()
            try:
                await self._collect()
            except ApiError as error:
                self._log.warning("pod gc failed", error=error)
            wait_s = self._orphans.wait_s(self._clock.monotonic())
            if wait_s is not None:
                await self._clock.sleep(max(_BREATH_S, wait_s))
                continue
            with suppress(TimeoutError):
                async with self._clock.timeout(self._config.gc_period_s):
                    await self._node_lost.wait()

    async def _collect(self) -> None:
        """One round."""
        pods = self._pods.store.list()
        nodes = {node.metadata.name: node for node in self._nodes.store}
        due = self._orphans.due(pods, nodes, self._clock.monotonic())
        for name in sorted({pod.spec.node_name for pod in due}):
            if not await self._is_gone(name):
                continue
            why = f"Node {name} does not exist"
            for pod in due:
                if pod.spec.node_name == name and await self._remove_orphan(pod, why):
                    self._log.info("orphaned pod removed", pod=pod.key, node=name)
        dead = {
            name
            for name, node in nodes.items()
            if any(taint.key == podgc.OUT_OF_SERVICE for taint in node.spec.taints)
        }
        for pod in podgc.out_of_service(pods, dead):
            await self._delete(pod, grace_period_s=0)
        for pod in podgc.surplus(pods, self._config.finished_pods):
            await self._delete(pod, grace_period_s=0)

    async def _remove_orphan(self, pod: Pod, why: str) -> bool:
        if pod.metadata.deletion_timestamp or is_finished(pod):
            return await self._delete(pod, grace_period_s=0)
        return await self._mark_and_delete(pod, disruption_target.BY_POD_GC, why, grace_period_s=0)

    async def _is_gone(self, node: str) -> bool:
        """Whether the server, too, knows no such node: a cache may lag."""
        try:
            await self._client.get(NODE, node)
        except NotFound:
            return True
        return False

    async def _delete(self, pod: Pod, *, grace_period_s: int | None) -> bool:
        try:
            # Of the version that was read: a node that is back has reported its pods since.
            await self._client.delete_as_read(POD, pod, grace_period_s=grace_period_s)
        except (NotFound, Conflict):
            return False  # gone or changed, or its name is another's
        return True


def _words(held: Sequence[Taint]) -> str:
    return ", ".join(
        f"{taint.key}:{taint.effect}" for taint in held if taint.key in node_taints.OURS
    ) or ", ".join(f"{taint.key}:{taint.effect}" for taint in held if taint.effect == NO_EXECUTE)
