"""The shell of the replication controller: news in, one pass for one controller at a time, out.

Every pass reads the caches, decides with ``logic`` and carries it out with ``writes``. Passes are
triggered by changes of controllers, pods and nodes, by what becomes due (a pod that counts as
available, a place that was held), by retries of failures, and by a slow resync.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import msgspec

from grange.api import conditions
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER, node as nodes, pod as pods
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, ObjectKey, controller_of
from grange.api.selectors import SelectorError
from grange.api.status import Conflict, NotFound
from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.controllers.replication import identity, logic, scheduling, status
from grange.controllers.replication.config import ReplicationConfig
from grange.controllers.replication.events import Reason
from grange.controllers.replication.replacements import Replacements
from grange.controllers.replication.writes import Writes, is_quiet, owner_key
from grange.reconcile.controller import Controller, Done, Requeue, Result, Terminal
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.indexer import Indexer
from grange.reconcile.recorder import WARNING, Recorder
from grange.reconcile.workqueue import WorkQueue

NAME = "replication"

_BY_OWNER = "replication/owner-uid"  # pods by the uid of their controller
_BY_MARK = "replication/orphan-of"  # orphans by namespace and name label
_BY_NODE = "replication/node"  # pods by the node they are bound to
_BY_LABEL = "replication/label"  # controllers by namespace and the label value of their name

_RETRY = Exponential(initial_s=0.02, cap_s=60.0)  # the field's cap of 17 minutes outlives patience
_AGAIN_S = 1.0  # after losing a race whose winner's news is on its way
_SETTLE_S = 0.02  # nodes change in bursts; one look at the controllers serves many changes
_SETTLE_SHARE = 10  # looking at the controllers takes at most a tenth of the time


class ReplicationService:
    """Keeps the pods of every ReplicationController; ``run`` it once per process.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
        scheduler: which nodes may be used; by node selectors unless given.
    """

    def __init__(
        self,
        deps: Deps,
        config: ReplicationConfig | None = None,
        scheduler: scheduling.Scheduler | None = None,
    ) -> None:
        self._config = config or ReplicationConfig()
        self._client = deps.client
        self._clock = deps.clock
        self._rng = deps.rng.fork(NAME)
        self._log = deps.log.bind(controller=NAME)
        self._recorder = Recorder(
            deps.client,
            "replication-controller",
            clock=deps.clock,
            rng=self._rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._expectations = Expectations(deps.clock)
        self._writes = Writes(deps.client, self._expectations, self._recorder)
        self._replacements = Replacements(
            self._config.replacement, self._config.replacement_reset_s
        )
        self._controllers = deps.informers.informer(REPLICATIONCONTROLLER)
        self._pods = deps.informers.informer(POD)
        self._nodes = deps.informers.informer(NODE)
        self._selector = scheduling.NodeSelectorScheduler(lambda: self._nodes.store)
        self._scheduler: scheduling.Scheduler = scheduler or self._selector
        self._eligible: dict[str, Sequence[str]] = {}  # by controller uid: the answer acted on
        self._nodes_moved = asyncio.Event()
        limiter = FailureLimiter(
            exponential=_RETRY, bucket=TokenBucket(rate_per_s=1000.0, burst=10_000)
        )
        self.loop = Controller(
            NAME,
            self.reconcile,
            queue=WorkQueue(deps.clock, limiter),
            workers=self._config.workers,
            clock=deps.clock,
            rng=self._rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._index()
        self._controllers.add_handler(
            self._controller_added, self._controller_changed, self._controller_gone
        )
        self._pods.add_handler(self._pod_added, self._pod_changed, self._pod_gone)
        self._nodes.add_handler(self._node_changed, self._node_updated, self._node_changed)

    async def run(self) -> None:
        """Work until cancelled; begins when the caches have shown a complete state."""
        for informer in (self._controllers, self._pods, self._nodes):
            await informer.synced.wait()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name="replication events")
            nursery.start(self._watch_nodes(), name="replication nodes")
            nursery.start(self._resync(), name="replication resync")
            nursery.start(self.loop.run(), name="replication loop")

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for controller in self._controllers.store.list():
                delay_s = self._rng.uniform(0.0, self._config.resync_s / 10)
                self.loop.enqueue_after(controller.key, delay_s)

    # --- one pass -----------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one controller's pods and status a step closer to its spec.

        Raises:
            Terminal: the spec cannot be acted on.
            GrangeError: a write failed; to be tried again.
        """
        controller = self._controllers.store.get(key)
        if controller is None:
            return Done()
        uid = controller.metadata.uid
        if not self._expectations.satisfied(uid):
            return Requeue(self._expectations.remaining_s(uid))
        claim = logic.claim(controller, self._candidates(controller))
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._writes.claim(controller, claim)
        situation, held_s = await self._situation(controller, [*claim.owned, *adopted])
        try:
            plan = logic.plan(situation)
        except logic.InvalidController as error:
            self._refuse(controller, error)
        failure = await self._writes.carry_out(controller, self._bounded(plan)) or failure
        outcome = status.observe(
            situation,
            plan,
            now=self._clock.now(),
            failure=str(failure) if failure is not None and not is_quiet(failure) else "",
        )
        written = await self._write_status(outcome)
        if failure is not None and not is_quiet(failure):
            raise failure
        waits = [wait for wait in (held_s, outcome.next_available_s) if wait is not None]
        if failure is not None or not written:
            waits.append(_AGAIN_S)
        return Requeue(min(waits)) if waits else Done()

    def _candidates(self, controller: ReplicationController) -> list[Pod]:
        meta = controller.metadata
        mark = f"{meta.namespace}/{identity.label_value(meta.name)}"
        return [
            *self._pods.store.by_index(_BY_OWNER, meta.uid),
            *self._pods.store.by_index(_BY_MARK, mark),
        ]

    async def _situation(
        self, controller: ReplicationController, owned: list[Pod]
    ) -> tuple[logic.Situation, float | None]:
        """What the plan depends on, and seconds until the next held place is due."""
        uid = controller.metadata.uid
        try:
            eligible = await self._scheduler.eligible_nodes(controller)
        except (SelectorError, msgspec.ValidationError) as error:
            self._refuse(controller, error)
        self._eligible[uid] = eligible
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, due_s = self._replacements.held(uid, finished, self._clock.monotonic())
        bound = {pod.spec.node_name for pod in owned if pod.spec.node_name}
        situation = logic.Situation(
            controller,
            owned,
            eligible,
            down=frozenset(name for name in bound if not self._is_up(name)),
            taken=_Taken(self._pods.store, controller.metadata.namespace, owned),
            held=held,
        )
        return situation, due_s

    def _is_up(self, name: str) -> bool:
        node = self._nodes.store.get(ObjectKey("", name))
        return node is not None and nodes.is_ready(node)

    def _bounded(self, plan: logic.Plan) -> logic.Plan:
        """At most ``burst`` of each; the rest is planned anew when these have been seen."""
        burst = self._config.burst
        return replace(
            plan, create=plan.create[:burst], delete=plan.delete[:burst], repair=plan.repair[:burst]
        )

    def _refuse(self, controller: ReplicationController, error: Exception) -> NoReturn:
        self._recorder.event(
            controller, WARNING, Reason.INVALID, str(error), kind=REPLICATIONCONTROLLER
        )
        raise Terminal(f"{controller.key}: {error}") from error

    async def _write_status(self, outcome: status.Outcome) -> bool:
        """Write the status if it changed; False if the controller changed meanwhile."""
        controller = outcome.controller
        wanted = status.status_of(outcome, self._clock.now())
        if wanted == controller.status:
            return True
        try:
            await self._client.patch(
                REPLICATIONCONTROLLER,
                controller.metadata.name,
                controller.metadata.namespace,
                patch=status.patch_of(controller, wanted),
                subresource="status",
            )
        except NotFound:
            return True
        except Conflict:
            return False
        self._tell_shortage(controller, wanted.conditions)
        return True

    def _tell_shortage(
        self, controller: ReplicationController, now_said: Sequence[Condition]
    ) -> None:
        said = conditions.find(controller.status.conditions, "InsufficientNodes")
        short = conditions.find(now_said, "InsufficientNodes")
        if short is None or short.status != "True":
            return
        if said is None or said.message != short.message or said.status != "True":
            self._recorder.event(
                controller,
                WARNING,
                Reason.INSUFFICIENT_NODES,
                short.message,
                kind=REPLICATIONCONTROLLER,
            )

    # --- news ---------------------------------------------------------------------------------

    def _index(self) -> None:
        def owner(pod: Pod) -> Sequence[str]:
            reference = controller_of(pod.metadata)
            return () if reference is None else (reference.uid,)

        def mark(pod: Pod) -> Sequence[str]:
            label = pod.metadata.labels.get(identity.RC_NAME_LABEL)
            if label is None or controller_of(pod.metadata) is not None:
                return ()
            return (f"{pod.metadata.namespace}/{label}",)

        def label(controller: ReplicationController) -> Sequence[str]:
            meta = controller.metadata
            return (f"{meta.namespace}/{identity.label_value(meta.name)}",)

        self._pods.store.add_index(_BY_OWNER, owner)
        self._pods.store.add_index(_BY_MARK, mark)
        self._pods.store.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,))
        self._controllers.store.add_index(_BY_LABEL, label)

    def _controller_added(self, controller: ReplicationController) -> None:
        self.loop.enqueue(controller.key)

    def _controller_changed(self, old: ReplicationController, new: ReplicationController) -> None:
        if old.metadata.generation != new.metadata.generation:
            self.loop.queue.forget(new.key)  # a new spec deserves a prompt first attempt
        self.loop.enqueue(new.key)

    def _controller_gone(self, controller: ReplicationController) -> None:
        uid = controller.metadata.uid
        self._expectations.forget(uid)
        self._replacements.forget(uid)
        self._eligible.pop(uid, None)

    def _pod_added(self, pod: Pod) -> None:
        owner = owner_key(pod)
        if owner is not None:
            key, uid = owner
            if pod.metadata.deletion_timestamp:
                self._expectations.deletion_observed(uid, pod.metadata.uid)
            self._expectations.creation_observed(uid, pod.metadata.name)
            self._enqueue_owner(key, uid)
        else:
            self._enqueue_adopters(pod)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        before, owner = owner_key(old), owner_key(new)
        if before is not None and before != owner:
            self._enqueue_owner(*before)
        if owner is None:
            self._enqueue_adopters(new)
            return
        if new.metadata.deletion_timestamp:
            self._expectations.deletion_observed(owner[1], new.metadata.uid)
        self._enqueue_owner(*owner)

    def _pod_gone(self, pod: Pod) -> None:
        owner = owner_key(pod)
        if owner is not None:
            self._expectations.deletion_observed(owner[1], pod.metadata.uid)
            self._enqueue_owner(*owner)
        # Whoever wanted this name for a pod of their own can have it now; they retry by themselves.

    def _enqueue_owner(self, key: ObjectKey, uid: str) -> None:
        controller = self._controllers.store.get(key)
        if controller is not None and controller.metadata.uid == uid:
            self.loop.enqueue(key)

    def _enqueue_adopters(self, pod: Pod) -> None:
        label = pod.metadata.labels.get(identity.RC_NAME_LABEL)
        if label is not None:
            mark = f"{pod.metadata.namespace}/{label}"
            for controller in self._controllers.store.by_index(_BY_LABEL, mark):
                self.loop.enqueue(controller.key)

    def _node_updated(self, old: Node, new: Node) -> None:
        if scheduling.placement_facts(old) != scheduling.placement_facts(new):
            self._node_changed(new)

    def _node_changed(self, node: Node) -> None:
        self._selector.nodes_changed()
        self._nodes_moved.set()
        for pod in self._pods.store.by_index(_BY_NODE, node.metadata.name):
            if (owner := owner_key(pod)) is not None:
                self._enqueue_owner(*owner)

    async def _watch_nodes(self) -> None:
        """Wake the controllers whose eligible nodes have changed since they last acted on them."""
        while True:
            await self._nodes_moved.wait()
            self._nodes_moved.clear()
            started = self._clock.monotonic()
            for controller in self._controllers.store.list():
                try:
                    eligible = await self._scheduler.eligible_nodes(controller)
                except (GrangeError, msgspec.ValidationError):
                    continue  # its own pass reports it
                if eligible != self._eligible.get(controller.metadata.uid):
                    self.loop.enqueue(controller.key)
            took_s = self._clock.monotonic() - started
            await self._clock.sleep(max(_SETTLE_S, took_s * _SETTLE_SHARE))


class _Taken:
    """The names of a namespace's pods except some, without listing them."""

    def __init__(self, store: Indexer[Pod], namespace: str, besides: Sequence[Pod]) -> None:
        self._store = store
        self._namespace = namespace
        self._besides = {pod.metadata.name for pod in besides}

    def __contains__(self, name: object) -> bool:
        return name not in self._besides and ObjectKey(self._namespace, str(name)) in self._store
