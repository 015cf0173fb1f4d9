"""Carries out rollouts between two controllers, by RollingUpdate objects.

A reconcile reads both controllers from the server (there are few rollouts), counts their pods in the lister,
decides, stores the decision in the rollout's status, and only then moves replicas. Any process can finish the
move (``client.transfers``), so counts are never lost between the two.
"""

import dataclasses
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec.structs import replace

from grange.api import conditions, timestamps
from grange.api.kinds import (
    NODE,
    POD,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    pod as pods,
)
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate, RollingUpdateStatus
from grange.api.meta import ObjectKey, all_fields
from grange.api.replication import BadIntent, check_orders
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.backoff import Exponential
from grange.base.tasks import Nursery
from grange.controllers.rollingupdate import controller_pair, finalizer, logic
from grange.controllers.rollingupdate.controller_pair import ControllerPair
from grange.controllers.rollingupdate.finalizer import RolloutFinalizer
from grange.controllers.rollingupdate.logic import OVER, Decision, PodCounts
from grange.controllers.shared import availability, deletion_order
from grange.controllers.shared.availability import Readiness
from grange.controllers.shared.event_reasons import FAILURES, INVALID_ANNOTATION
from grange.controllers.shared.pod_identity import controller_key
from grange.controllers.shared.rollout_metrics import instruments
from grange.controllers.shared.rollout_phase import RolloutPhase
from grange.reconcile import finalizers, owners
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import NORMAL, WARNING, Recorder
from grange.reconcile.workqueue import rate_limited_queue
from grange.reconcile.write_tracker import is_only_annotated

NAME = "rollingupdate"

_BY_CONTROLLER = "rollingupdate/controller"  # rollouts by namespace and name of either controller
_AGAIN_S = 5.0  # nodes that fail, and pods that become available, cause no event here
_RETRY = Exponential(initial_s=0.05, cap_s=60.0)


class RollingUpdateService:
    """Carries out every RollingUpdate; ``run`` it once per process."""

    def __init__(self, deps: Deps) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._recorder = Recorder(
            deps.client,
            "rolling-update",
            clock=deps.clock,
            rng=deps.rng.fork(NAME),
            log=deps.log,
            metrics=deps.metrics,
        )
        self._instruments = instruments(deps.metrics)
        self._readiness = Readiness(deps.clock)
        self._finalizer = RolloutFinalizer(deps.client, self._recorder, clock=deps.clock)
        self._updates = deps.informers.informer(ROLLINGUPDATE)
        self._controllers = deps.informers.informer(REPLICATIONCONTROLLER)
        self._pods = deps.informers.informer(POD)
        self._nodes = deps.informers.informer(NODE)
        self.loop = Controller(
            NAME,
            self.reconcile,
            queue=rate_limited_queue(deps.clock, _RETRY, rate_per_s=100.0, burst=1000),
            clock=deps.clock,
            rng=deps.rng.fork(NAME),
            log=deps.log.bind(controller=NAME),
            metrics=deps.metrics,
        )
        self._index()
        self._updates.add_handler(
            lambda new: self.loop.enqueue(new.key),
            lambda old, new: self.loop.enqueue(new.key),
            self._over,
        )
        self._controllers.add_handler(
            lambda new: self._enqueue(new.key),
            self._controller_changed,
            lambda last: self._enqueue(last.key),
        )
        self._readiness.watch(self._pods)
        self._pods.add_handler(self._pod_seen, lambda _, new: self._pod_seen(new), self._pod_seen)

    async def run(self) -> None:
        """Run until cancelled; starts when the informers are synced."""
        for informer in (self._updates, self._controllers, self._pods, self._nodes):
            await informer.synced.wait()
        async with Nursery(NAME) as nursery:
            nursery.start(self._recorder.run(), name="rolling update events")
            nursery.start(self.loop.run(), name="rolling update loop")

    async def reconcile(self, key: ObjectKey) -> Result:
        """Advance one rollout by a step.

        Raises:
            GrangeError: a write failed or conflicted; try again.
        """
        update = self._updates.store.get(key)
        if update is None:
            return Done()
        try:
            return await self._advance(update)
        except BadIntent as error:
            await self._hold_up(update, str(error))
            raise

    async def _advance(self, update: RollingUpdate) -> Result:
        over = bool(update.status.phase) and RolloutPhase(update.status.phase) in OVER
        if update.metadata.deletion_timestamp:
            pair = await controller_pair.read(self._client, update, completed=not over)
            if not over and pair.is_pending(update):
                await controller_pair.revoke(self._client, pair)
            await self._finalizer.cancel(update, pair, over=over)
            return Done()
        if over:
            pair = await controller_pair.read(self._client, update)
            left_s = await self._finalizer.finish(update, pair.new)
            return Requeue(left_s) if left_s else Done()
        pair = await controller_pair.read(self._client, update, completed=True)
        if _is_held_up(update.status):  # else each attempt would first report progress
            for controller in (pair.old, pair.new):
                if controller is not None:
                    check_orders(controller)
        update = await self._finalizer.publish(update, pair.new)
        in_doubt: ApiError | None = None
        if pair.is_pending(update):
            try:
                pair = await controller_pair.revoke(self._client, pair)
            except Conflict:
                raise  # a controller has changed: try again
            except ApiError as error:
                in_doubt = error
        return await self._step(update, pair, in_doubt)

    async def _step(
        self, update: RollingUpdate, pair: ControllerPair, in_doubt: ApiError | None
    ) -> Result:
        """Decide and carry out; nothing is moved while the outcome of an earlier step is not certain."""
        old, new = pair.old, pair.new
        decision = self._decide(update, pair, self._counts(old), self._counts(new))
        if decision.split is not None and pair.shrinks(decision.split):
            # The watch may hang, or agents cannot write: read live before a pod is deleted.
            decision = self._decide(
                update, pair, await self._live_counts(old), await self._live_counts(new)
            )
        if in_doubt is not None:
            status = replace(decision.status, replicas=update.status.replicas)
            decision = dataclasses.replace(decision, status=status, split=None, delete_old=False)
        if decision.delete_old and old is not None:
            with suppress(NotFound):  # before the rollout is complete
                await self._client.delete_as_read(REPLICATIONCONTROLLER, old)
            pair = ControllerPair(None, new)
        if decision.status.began is not None:
            update = await finalizers.add(self._client, ROLLINGUPDATE, update, finalizer.FINALIZER)
        await self._store(update, pair, decision)
        if decision.split is not None:
            await controller_pair.move(self._client, update, pair, decision.split)
        if in_doubt is not None:
            raise in_doubt
        if RolloutPhase(decision.status.phase) in OVER:
            return Done()
        waits = [_AGAIN_S] if decision.wait_s is None else [decision.wait_s, _AGAIN_S]
        return Requeue(min(waits))

    def _decide(
        self, update: RollingUpdate, pair: ControllerPair, old_pods: PodCounts, new_pods: PodCounts
    ) -> Decision:
        rivals, now = self._rivals(update), self._clock.now()
        facts = logic.UpdateInputs(update, pair.old, pair.new, old_pods, new_pods, rivals, now)
        return logic.decide(facts)

    def _counts(self, controller: ReplicationController | None) -> PodCounts:
        if controller is None:
            return PodCounts()
        active = [
            pod
            for pod in self._pods.store.by_index(owners.CONTROLLER_UID, controller.metadata.uid)
            if pods.is_active(pod)
        ]
        now = self._clock.now()
        down = availability.nodes_down(self._nodes.store, active)
        return logic.count_pods(controller, active, down, now, self._readiness)

    async def _live_counts(self, controller: ReplicationController | None) -> PodCounts:
        """The counts by what the server has and the nodes reported."""
        if controller is None:
            return PodCounts()
        active = await availability.active_pods(self._client, controller)
        down = availability.nodes_down(self._nodes.store, active)
        ready = [pod for pod in active if deletion_order.is_ready(pod, down)]
        sure = await availability.reported_ready(self._client, controller, ready, self._readiness)
        now = self._clock.now()
        return logic.count_pods(controller, active, down, now, self._readiness, sure)

    def _rivals(self, update: RollingUpdate) -> list[str]:
        """Earlier rollouts of one of the controllers."""
        mine = (update.metadata.creation_timestamp or "", update.metadata.uid)
        found = {
            other.metadata.name
            for name in {update.spec.old, update.spec.new} - {""}
            for other in self._updates.store.by_index(
                _BY_CONTROLLER, f"{update.metadata.namespace}/{name}"
            )
            if other.metadata.uid != update.metadata.uid
            and not other.metadata.deletion_timestamp
            and (not other.status.phase or RolloutPhase(other.status.phase) not in OVER)
            and (
                other.status.began is not None
                or (other.metadata.creation_timestamp or "", other.metadata.uid) < mine
            )
        }
        return sorted(found)

    # --- writes -------------------------------------------------------------------------------

    async def _store(self, update: RollingUpdate, pair: ControllerPair, decision: Decision) -> None:
        """Write the decision and its outbox, unless the rollout has changed."""
        now = self._clock.now()
        status = _with_conditions(update, decision, now)
        if RolloutPhase(status.phase) in OVER:
            status = replace(status, finished_at=timestamps.rfc3339(now))
        status = replace(status, outbox=finalizer.entries(update, pair, decision.events, now))
        # A repeated step changes nothing in the status, and must fail all the same if the rollout
        # has changed.
        if status != update.status or decision.split is not None:
            change = {"status": all_fields(status)}
            await self._client.patch_as_read(ROLLINGUPDATE, update, change, subresource="status")
        if decision.split is not None:
            self._instruments.steps.inc()
        for reason, message in decision.events:
            self._instruments.rollouts.labels(reason.value).inc()
            kind = WARNING if reason in FAILURES else NORMAL
            self._recorder.event(update, kind, reason, message, kind=ROLLINGUPDATE)

    async def _hold_up(self, update: RollingUpdate, why: str) -> None:
        """Set the condition that a malformed annotation of a controller blocks the rollout."""
        meta = update.metadata
        with suppress(Conflict, NotFound):  # it has changed: there is another reconcile
            live = await self._client.get(ROLLINGUPDATE, meta.name, meta.namespace)
            found = conditions.set_status(
                live.status.conditions,
                "Progressing",
                ("False", INVALID_ANNOTATION, why),
                generation=live.metadata.generation,
                now=self._clock.now(),
            )
            if found == live.status.conditions or live.metadata.uid != meta.uid:
                return
            change = {"status": {"conditions": msgspec.to_builtins(found)}}
            await self._client.patch_as_read(ROLLINGUPDATE, live, change, subresource="status")
            if not _is_held_up(live.status):
                self._instruments.skips.labels(INVALID_ANNOTATION).inc()

    # --- events -------------------------------------------------------------------------------

    def _index(self) -> None:
        def controllers(update: RollingUpdate) -> tuple[str, ...]:
            namespace = update.metadata.namespace
            return tuple(
                f"{namespace}/{name}" for name in (update.spec.old, update.spec.new) if name
            )

        self._pods.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
        self._updates.store.add_index(_BY_CONTROLLER, controllers)

    def _controller_changed(self, old: ReplicationController, new: ReplicationController) -> None:
        if not is_only_annotated(old, new, controller_pair.REVOKED_ANNOTATION):
            self._enqueue(new.key)

    def _pod_seen(self, pod: Pod) -> None:
        if (owner := controller_key(pod)) is not None:
            self._enqueue(owner[0])

    def _over(self, update: RollingUpdate) -> None:
        for name in {update.spec.old, update.spec.new} - {""}:
            self._enqueue(ObjectKey(update.metadata.namespace, name))

    def _enqueue(self, controller: ObjectKey) -> None:
        mark = f"{controller.namespace}/{controller.name}"
        for update in self._updates.store.by_index(_BY_CONTROLLER, mark):
            self.loop.enqueue(update.key)


def _is_held_up(status: RollingUpdateStatus) -> bool:
    """Whether a malformed annotation was reported to block it."""
    found = conditions.find(status.conditions, "Progressing")
    return found is not None and found.reason == INVALID_ANNOTATION


def _with_conditions(
    update: RollingUpdate, decision: Decision, now: datetime
) -> RollingUpdateStatus:
    phase = RolloutPhase(decision.status.phase)
    verdicts = {
        "Progressing": phase in {RolloutPhase.PROGRESSING, RolloutPhase.ROLLING_BACK},
        "Complete": phase is RolloutPhase.COMPLETE,
        "RolloutFailed": phase
        in {
            RolloutPhase.FAILED,
            RolloutPhase.REFUSED,
            RolloutPhase.ROLLING_BACK,
            RolloutPhase.ROLLED_BACK,
        },
    }
    found = update.status.conditions
    for kind, holds in verdicts.items():
        verdict = str(holds), phase.value, decision.message
        found = conditions.set_status(
            found, kind, verdict, generation=update.metadata.generation, now=now
        )
    return replace(decision.status, conditions=found)
