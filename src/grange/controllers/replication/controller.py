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
from msgspec import structs

from grange.api import conditions
from grange.api.kinds import (
    NODE,
    POD,
    REPLICATIONCONTROLLER,
    node as nodes,
    pod as pods,
)
from grange.api.kinds.membership import OutboxEntry, drained_nodes
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, Document, ObjectKey, controller_of
from grange.api.selectors import SelectorError
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.backoff import Exponential, FailureLimiter, TokenBucket
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.controllers.replication import (
    audit,
    budget,
    health,
    identity,
    logic,
    orders,
    rollout,
    scheduling,
    status,
    transfer,
)
from grange.controllers.replication.advance import Advance
from grange.controllers.replication.config import ReplicationConfig
from grange.controllers.replication.echoes import Echoes
from grange.controllers.replication.events import FAILURES, Reason
from grange.controllers.replication.lent import Lent
from grange.controllers.replication.machinepool import MachinePool, MachinePoolScheduler
from grange.controllers.replication.metrics import instruments
from grange.controllers.replication.readiness import Readiness
from grange.controllers.replication.replacements import Replacements
from grange.controllers.replication.transfers import Transfers
from grange.controllers.replication.vouching import vouched
from grange.controllers.replication.writes import StaleCache, Writes, is_quiet, owner_key
from grange.reconcile.controller import Controller, Done, Requeue, Result, Terminal
from grange.reconcile.deps import Deps
from grange.reconcile.expectations import Expectations
from grange.reconcile.farm.errors import DeletionsHeld
from grange.reconcile.indexer import Indexer
from grange.reconcile.recorder import NORMAL, WARNING, Recorder
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
        pool: lends further machines to controllers whose pods have to move; none unless given.
    """

    def __init__(
        self,
        deps: Deps,
        config: ReplicationConfig | None = None,
        pool: MachinePool | None = None,
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
        self._instruments = instruments(deps.metrics)
        self._expectations = Expectations(deps.clock)
        self._writes = Writes(deps.client, self._expectations, self._recorder)
        self._replacements = Replacements(
            self._config.replacement, self._config.replacement_reset_s
        )
        self._echoes = Echoes(deps.clock)
        self._readiness = Readiness(deps.clock)
        self._journal = audit.Journal(deps.client, clock=deps.clock)
        self._transfers = Transfers(clock=deps.clock, log=self._log)
        self._controllers = deps.informers.informer(REPLICATIONCONTROLLER)
        self._pods = deps.informers.informer(POD)
        self._nodes = deps.informers.informer(NODE)
        self._selector = scheduling.NodeSelectorScheduler(lambda: self._nodes.store)
        self._scheduler: scheduling.Scheduler = (
            self._selector
            if pool is None
            else MachinePoolScheduler(self._selector, pool, deps.clock)
        )
        self._lent = (
            Lent(self._scheduler, deps.client, clock=deps.clock, log=self._log)
            if isinstance(self._scheduler, MachinePoolScheduler)
            else None
        )
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
            nursery.start(self._retain(), name="replication audit retention")
            if self._lent is not None:
                sweeps = self._lent.run(self._rng, self._config.pool_sweep_s, self._uids)
                nursery.start(sweeps, name="replication lent machines")
            nursery.start(self.loop.run(), name="replication loop")

    def _uids(self) -> set[str]:
        return {one.metadata.uid for one in self._controllers.store.list()}

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for controller in self._controllers.store.list():
                delay_s = self._rng.uniform(0.0, self._config.resync_s / 10)
                self.loop.enqueue_after(controller.key, delay_s)

    async def _retain(self) -> None:
        """Keep the audit within its bounds."""
        config = self._config
        while True:
            await self._clock.sleep(self._rng.uniform(0.9, 1.1) * config.audit_sweep_s)
            try:
                removed = await self._journal.trim(
                    keep=config.audit_keep, max_age_s=config.audit_max_age_s, now=self._clock.now
                )
            except ApiError as error:
                self._log.warning("audit not trimmed", error=error)
            else:
                self._log.info("audit trimmed", removed=removed)

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
        if (wait_s := self._echoes.remaining_s(controller)) > 0:
            return Requeue(wait_s)
        claim = logic.claim(controller, self._candidates(controller))
        if await orders.finish_transfer(controller, client=self._client, log=self._log):
            return Requeue(_AGAIN_S)  # their news comes sooner
        adopted: list[Pod] = []
        failure: Exception | None = None
        if not controller.spec.paused:
            adopted, failure = await self._writes.claim(controller, claim)
        situation, held_s, trouble = await self._situation(controller, [*claim.owned, *adopted])
        audited = await self._audited(situation)
        moves, decision = await self._judge(situation, known=trouble is None)
        situation = replace(
            situation, eligible=[n for n in situation.eligible if n not in moves.released]
        )
        situation = replace(
            situation,
            controller=decision.controller,
            limits=decision.limits if decision.sides is not None else None,
            sides=decision.sides,
        )
        try:
            plan = self._plan(situation, moves, known=trouble is None)
        except logic.InvalidController as error:
            self._refuse(controller, error)
        plan = await vouched(self._client, situation, plan)
        expected = plan
        plan = audited.unseen(plan)
        entries = audit.entries(controller, plan, moves, decision, self._clock.now())
        controller = await self._intend(controller, moves, entries, decision, audited.members)
        situation = replace(situation, controller=controller)
        failure = await self._writes.carry_out(controller, plan) or failure
        left: Sequence[OutboxEntry] = entries
        recorded = audited.members
        if failure is None or isinstance(failure, StaleCache):
            if entries:
                recorded = await self._journal.publish(controller, entries, audited.pods(situation))
            left = ()
        failure = failure or trouble
        outcome = status.observe(
            situation,
            expected,
            now=self._clock.now(),
            moves=moves,
            readiness=self._readiness,
            failure=str(failure) if failure is not None and not is_quiet(failure) else "",
            cause=_cause(failure, trouble),
        )
        written = await self._write_status(outcome, left, recorded)
        if failure is not None and not is_quiet(failure):
            raise failure
        waits = [
            wait
            for wait in (held_s, outcome.next_available_s, moves.wait_s, decision.deadline_s)
            if wait is not None
        ]
        if failure is not None or not written or plan != expected:
            waits.append(_AGAIN_S)
        if moves.after != moves.stored or moves.released:
            waits.append(0.0)  # what is stored now can be acted on
        return Requeue(min(waits)) if waits else Done()

    async def _audited(self, situation: logic.Situation) -> audit.Recorded:
        """The members that are recorded, once everything up to now is."""
        controller, owned = situation.controller, situation.owned
        found = audit.fingerprint(audit.members(owned))
        if not controller.status.outbox and found == controller.status.audited:
            return audit.Recorded(found)
        return await self._journal.settle(controller, owned)

    async def _judge(
        self, situation: logic.Situation, *, known: bool
    ) -> tuple[Advance, rollout.Decision]:
        """How transfers and the rollout go on; both stay where they are while nodes are not known."""
        if not known:
            controller = situation.controller
            stored = list(controller.status.node_transfers)
            return Advance(stored=stored, after=stored), rollout.Decision(
                controller, None, budget.limits(controller)
            )
        moves = await self._transfers.advance(situation, self._scheduler)
        eligible = [name for name in situation.eligible if name not in moves.released]
        situation = orders.obeyed(replace(situation, eligible=eligible))
        return moves, self._decide(transfer.hidden(situation, moves.after))

    def _plan(self, situation: logic.Situation, moves: Advance, *, known: bool) -> logic.Plan:
        """What to do in this pass, transfers included; at most ``burst`` of each."""
        now = self._clock.now()
        going = orders.condemned(situation.controller, situation.owned)
        plan = logic.plan(transfer.hidden(orders.obeyed(situation), moves.after))
        if not known:
            plan = logic.careful(plan, situation.controller)
        ordered = tuple(logic.Removal(pod, "Removed") for pod in going)
        plan = replace(plan, delete=(*ordered, *transfer.spared(plan, moves.after).delete))
        plan = logic.bounded(plan, self._config.burst)
        if not moves.stored:
            return plan
        available = situation.available or frozenset()
        leaving = available & {removal.pod.metadata.uid for removal in plan.delete}
        spare = len(available) - len(leaving) - budget.limits(situation.controller).minimum
        return transfer.with_acts(plan, situation, moves.stored, spare=spare, now=now)

    def _decide(self, situation: logic.Situation) -> rollout.Decision:
        """What the rollout of the template comes to, on the pods that count."""
        return rollout.decide(
            rollout.Facts(
                situation.controller,
                [pod for pod in situation.owned if logic.is_active(pod)],
                situation.available or frozenset(),
                situation.eligible,
                situation.down,
                self._clock.now(),
            )
        )

    async def _intend(
        self,
        controller: ReplicationController,
        moves: Advance,
        entries: Sequence[OutboxEntry],
        decision: rollout.Decision,
        audited: str,
    ) -> ReplicationController:
        """Store what is about to be done, unless the controller changed meanwhile.

        Returns:
            The controller with the template that pods are made from.

        Raises:
            Conflict: it did; the pass was about a controller that is not there any more.
        """
        now_stored = controller.status
        transfers = tuple(moves.after)
        spread = status.rollout_of(decision.controller.status)
        if spread == status.rollout_of(now_stored):
            spread = {}
        if not (spread or entries or now_stored.outbox or transfers != now_stored.node_transfers):
            return decision.controller
        intent = {
            "nodeTransfers": msgspec.to_builtins(transfers),
            "outbox": msgspec.to_builtins(entries),
            **spread,
            "audited": audited,
        }
        written = await self._patch_status(
            controller, {**status.fence_of(controller), "status": intent}
        )
        if spread:
            self._instruments.steps.inc()
        for event, _ in moves.records:
            self._instruments.transfers.labels(event).inc()
        for reason, message in decision.news:
            self._instruments.rollouts.labels(reason.value).inc()
            kind = WARNING if reason in FAILURES else NORMAL
            self._recorder.event(controller, kind, reason, message, kind=REPLICATIONCONTROLLER)
        return structs.replace(written, spec=decision.controller.spec)

    async def _patch_status(
        self, controller: ReplicationController, patch: Document
    ) -> ReplicationController:
        meta = controller.metadata
        written = await self._client.patch(
            REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=patch, subresource="status"
        )
        self._echoes.wrote(written)
        return written

    def _candidates(self, controller: ReplicationController) -> list[Pod]:
        meta = controller.metadata
        mark = f"{meta.namespace}/{identity.label_value(meta.name)}"
        return [
            *self._pods.store.by_index(_BY_OWNER, meta.uid),
            *self._pods.store.by_index(_BY_MARK, mark),
        ]

    async def _situation(
        self, controller: ReplicationController, owned: list[Pod]
    ) -> tuple[logic.Situation, float | None, GrangeError | None]:
        """What the plan depends on, seconds until the next held place is due, and why nodes are unknown."""
        uid = controller.metadata.uid
        trouble: GrangeError | None = None
        try:
            eligible = await self._scheduler.eligible_nodes(controller)
        except (SelectorError, msgspec.ValidationError) as error:
            self._refuse(controller, error)
        except GrangeError as error:
            trouble = error  # what needs no further node goes on
            eligible = sorted({identity.node_of(pod) for pod in owned} - {""})
        self._eligible[uid] = eligible
        if left := drained_nodes(controller):
            eligible = [name for name in eligible if name not in left]
        finished = [
            pod for pod in owned if pods.is_finished(pod) and not pod.metadata.deletion_timestamp
        ]
        held, due_s = self._replacements.held(uid, finished, self._clock.monotonic())
        bound = {pod.spec.node_name for pod in owned if pod.spec.node_name}
        down = frozenset(name for name in bound if not self._is_up(name))
        active = [pod for pod in owned if logic.is_active(pod)]
        seen = health.observe(controller, active, down, self._clock.now(), self._readiness)
        situation = logic.Situation(
            controller,
            owned,
            eligible,
            down=down,
            taken=_Taken(self._pods.store, controller.metadata.namespace, owned),
            held=held,
            available=seen.available,
        )
        return situation, due_s, trouble

    def _is_up(self, name: str) -> bool:
        node = self._nodes.store.get(ObjectKey("", name))
        return node is not None and nodes.is_ready(node)

    def _refuse(self, controller: ReplicationController, error: Exception) -> NoReturn:
        self._recorder.event(
            controller, WARNING, Reason.INVALID, str(error), kind=REPLICATIONCONTROLLER
        )
        raise Terminal(f"{controller.key}: {error}") from error

    async def _write_status(
        self, outcome: status.Outcome, outbox: Sequence[OutboxEntry], audited: str
    ) -> bool:
        """Write the status if it changed; False if the controller changed meanwhile."""
        controller = outcome.controller
        wanted = msgspec.structs.replace(
            status.status_of(outcome, self._clock.now()), outbox=tuple(outbox), audited=audited
        )
        if wanted == controller.status:
            return True
        try:
            await self._patch_status(controller, status.patch_of(controller, wanted))
        except NotFound:
            return True
        except Conflict:
            return False
        for reason in status.skips(controller.status.conditions, wanted.conditions):
            self._instruments.skips.labels(reason).inc()
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
        if _facts(old) != _facts(new) or self._echoes.awaited(new.metadata.uid):
            self.loop.enqueue(new.key)

    def _controller_gone(self, controller: ReplicationController) -> None:
        uid = controller.metadata.uid
        self._expectations.forget(uid)
        self._replacements.forget(uid)
        self._transfers.forget(uid)
        self._echoes.forget(uid)
        self._eligible.pop(uid, None)

    def _pod_added(self, pod: Pod) -> None:
        self._readiness.appeared(pod)
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
        self._readiness.changed(old, new)
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
        self._readiness.gone(pod)
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


def _facts(controller: ReplicationController) -> tuple[object, ...]:
    """What a pass depends on, besides pods and nodes.

    Not the status, which is our own: every failed pass writes there what it was about to do, and
    that must not bring about the next one past its backoff.
    """
    meta = controller.metadata
    return meta.generation, meta.labels, meta.annotations, meta.deletion_timestamp


def _cause(failure: Exception | None, trouble: GrangeError | None) -> str:
    """What the condition names as the reason of a failure."""
    if isinstance(failure, DeletionsHeld):
        return "DeletionsHeld"
    return "NodesUnknown" if failure is not None and failure is trouble else "WriteFailed"


class _Taken:
    """The names of a namespace's pods except some, without listing them."""

    def __init__(self, store: Indexer[Pod], namespace: str, besides: Sequence[Pod]) -> None:
        self._store = store
        self._namespace = namespace
        self._besides = {pod.metadata.name for pod in besides}

    def __contains__(self, name: object) -> bool:
        return name not in self._besides and ObjectKey(self._namespace, str(name)) in self._store
