"""Event handlers: changes of controllers, pods, nodes and budgets become keys of the work queue."""

import asyncio
from contextlib import suppress

import msgspec

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.api.selectors import SelectorError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.controllers.replication import node_eligibility, pod_control
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.state import ReplicationState
from grange.controllers.shared.pod_identity import controller_key
from grange.reconcile.controller import Controller
from grange.reconcile.write_tracker import is_only_annotated

_SETTLE_S = 0.02  # nodes change in bursts; one pass over the controllers serves many changes
_SETTLE_SHARE = 10  # passes over the controllers take at most a tenth of the time


class ReplicationEventHandlers:
    """Keeps the state up to date and enqueues the controllers that an event concerns.

    Args:
        listers: whose handlers these become.
        state: what reconciles wait for.
        loop: with the work queue.
        selector: caches results that hold until nodes change.
        clock: for bursts.
    """

    def __init__(
        self,
        listers: Listers,
        state: ReplicationState,
        loop: Controller,
        *,
        selector: node_eligibility.NodeSelectorScheduler,
        clock: Clock,
    ) -> None:
        self._listers = listers
        self._state = state
        self._loop = loop
        self._selector = selector
        self._clock = clock
        self._nodes_changed = asyncio.Event()
        listers.controllers.add_handler(
            self._controller_added, self._controller_changed, self._controller_gone
        )
        listers.pods.add_handler(self._pod_added, self._pod_changed, self._pod_gone)
        budget = self._budget_changed
        listers.disruption_budgets.add_handler(budget, lambda _, new: budget(new), budget)
        listers.nodes.add_handler(self._node_changed, self._node_updated, self._node_changed)

    async def watch_nodes(self, scheduler: node_eligibility.NodeScheduler) -> None:
        """Enqueue the controllers whose eligible nodes have changed since they last acted on them."""
        while True:
            await self._nodes_changed.wait()
            self._nodes_changed.clear()
            started = self._clock.monotonic()
            with suppress(GrangeError):  # every reconcile reports it and tries again
                self._enqueue_changed(await scheduler.eligible_nodes())
            took_s = self._clock.monotonic() - started
            await self._clock.sleep(max(_SETTLE_S, took_s * _SETTLE_SHARE))

    def _enqueue_changed(self, nodes: node_eligibility.EligibleNodes) -> None:
        for controller in self._listers.controllers.store.list():
            try:
                eligible = node_eligibility.places(nodes, controller)
            except (SelectorError, msgspec.ValidationError):
                continue  # its own reconcile reports it
            if eligible != self._state.eligible.get(controller.metadata.uid):
                self._loop.enqueue(controller.key)

    # --- controllers --------------------------------------------------------------------------

    def _controller_added(self, controller: ReplicationController) -> None:
        self._loop.enqueue(controller.key)

    def _controller_changed(self, old: ReplicationController, new: ReplicationController) -> None:
        if old.metadata.generation != new.metadata.generation:
            self._loop.queue.forget(new.key)  # a new spec deserves a prompt first attempt
        if _facts(old) != _facts(new) or self._state.written.awaited(new.metadata.uid):
            self._loop.enqueue(new.key)

    def _controller_gone(self, controller: ReplicationController) -> None:
        self._state.forget(controller.metadata.uid)

    # --- pods ---------------------------------------------------------------------------------

    def _pod_added(self, pod: Pod) -> None:
        self._state.readiness.appeared(pod)
        owner = controller_key(pod)
        if owner is not None:
            key, uid = owner
            if pod.metadata.deletion_timestamp:
                self._state.expectations.deletion_observed(uid, pod.metadata.uid)
            self._state.expectations.creation_observed(uid, pod.metadata.name)
            self._enqueue_owner(key, uid)
        else:
            self._enqueue_adopters(pod)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        self._state.readiness.changed(old, new)
        before, owner = controller_key(old), controller_key(new)
        if before is not None and before != owner:
            self._enqueue_owner(*before)
        if owner is None:
            self._enqueue_adopters(new)
            return
        if new.metadata.deletion_timestamp:
            self._state.expectations.deletion_observed(owner[1], new.metadata.uid)
        note = pod_control.REVOKED_ANNOTATION
        if before == owner and is_only_annotated(old, new, note):
            return
        self._enqueue_owner(*owner)

    def _pod_gone(self, pod: Pod) -> None:
        self._state.readiness.gone(pod)
        owner = controller_key(pod)
        if owner is not None:
            self._state.expectations.deletion_observed(owner[1], pod.metadata.uid)
            self._enqueue_owner(*owner)

    def _enqueue_owner(self, key: ObjectKey, uid: str) -> None:
        controller = self._listers.controllers.store.get(key)
        if controller is not None and controller.metadata.uid == uid:
            self._loop.enqueue(key)

    def _enqueue_adopters(self, pod: Pod) -> None:
        for controller in self._listers.adopters(pod):
            self._loop.enqueue(controller.key)

    def _budget_changed(self, budget: PodDisruptionBudget) -> None:
        for key in [*self._state.kept_by_budget.values()]:
            if key.namespace == budget.metadata.namespace:
                self._loop.enqueue(key)

    # --- nodes --------------------------------------------------------------------------------

    def _node_updated(self, old: Node, new: Node) -> None:
        if node_eligibility.placement_facts(old) != node_eligibility.placement_facts(new):
            self._node_changed(new)

    def _node_changed(self, node: Node) -> None:
        self._selector.nodes_changed()
        self._nodes_changed.set()
        for pod in self._listers.on_node(node.metadata.name):
            if (owner := controller_key(pod)) is not None:
                self._enqueue_owner(*owner)


def _facts(controller: ReplicationController) -> tuple[object, ...]:
    """What a reconcile depends on, besides pods and nodes.

    Not the status: every failed reconcile writes to it what it was about to do, and that must not cause the
    next one before its backoff has passed.
    """
    meta = controller.metadata
    return meta.generation, meta.labels, meta.annotations, meta.deletion_timestamp
