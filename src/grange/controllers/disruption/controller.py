"""The shell of the disruption controller."""

from collections.abc import Sequence

import msgspec

from grange.api.kinds import BUILT_IN, POD, PODDISRUPTIONBUDGET, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetStatus
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey, controller_of, preconditions
from grange.api.scheme import AnyKind
from grange.api.selectors import Labels, SelectorError
from grange.api.status import NotFound
from grange.controllers.disruption import logic
from grange.controllers.disruption.config import DisruptionConfig
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps

NAME = "disruption"
_KINDS: dict[tuple[str, str], AnyKind] = {(info.api_version, info.kind): info for info in BUILT_IN}


class _NoScale(Exception):
    """An owner cannot be asked how many pods it wants."""


class DisruptionController:
    """Keeps the status of disruption budgets; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        config: settings.
    """

    def __init__(self, deps: Deps, config: DisruptionConfig | None = None) -> None:
        self._config = config or DisruptionConfig()
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log.bind(controller=NAME)
        self._budgets = deps.informers.informer(PODDISRUPTIONBUDGET)
        self._pods = deps.informers.informer(POD)
        self._owners = deps.informers.informer(REPLICATIONCONTROLLER)
        self._listens = False
        self.loop = Controller(
            NAME,
            self.reconcile,
            workers=self._config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._budgets.add_handler(self._seen, lambda _, new: self._seen(new))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._budgets.synced.wait()
        await self._pods.synced.wait()
        await self.loop.run()

    # --- what happens -------------------------------------------------------------------------

    def _seen(self, budget: PodDisruptionBudget) -> None:
        self.loop.enqueue(budget.key)
        if not self._listens:
            # Most clusters have no budget, and then pods are nothing to us.
            self._listens = True
            self._pods.add_handler(self._pod, self._pod_changed, self._pod)
            self._owners.add_handler(None, self._scaled, None)

    def _pod(self, *versions: Pod) -> None:
        for budget in self._budgets.store.list(versions[0].metadata.namespace):
            selector = _selector(budget)
            if any(selector.matches(pod.metadata.labels) for pod in versions):
                self.loop.enqueue(budget.key)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if _counted(old) != _counted(new):
            self._pod(old, new)

    def _scaled(self, old: ReplicationController, new: ReplicationController) -> None:
        if old.spec.replicas != new.spec.replicas:
            for budget in self._budgets.store.list(new.metadata.namespace):
                self.loop.enqueue(budget.key)

    # --- what follows -------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one budget's status up to date.

        Raises:
            ApiError: a request failed that had to succeed; to be tried again.
        """
        budget = self._budgets.store.get(key)
        if budget is None:
            return Done()
        now = self._clock.now()
        try:
            selector = _selector(budget)
            pods = [
                pod
                for pod in self._pods.store.list(key.namespace)
                if selector.matches(pod.metadata.labels)
            ]
            scales = await self._scales(pods) if logic.needs_scale(budget.spec) else None
            outcome = logic.judge(budget, pods, scales, now, self._config.unseen_s)
        except (_NoScale, SelectorError, logic.InvalidAmount) as why:
            await self._write(budget, logic.failed(budget, str(why), now))
            return Done()
        for name in outcome.unseen:
            self._log.warning("eviction did not happen", pod=f"{key.namespace}/{name}")
        await self._write(budget, outcome.status)
        return Done() if outcome.again_s is None else Requeue(outcome.again_s)

    async def _scales(self, pods: Sequence[Pod]) -> dict[str, int]:
        """How many pods the owners want; pods without an owner are not expected."""
        found: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None or owner.uid in found:
                continue
            kind = _KINDS.get((owner.api_version, owner.kind))
            if kind is None or kind.scale is None:
                raise _NoScale(f"{owner.kind} {owner.name} has no number of replicas")
            try:
                scale = await self._client.get_document(
                    kind, owner.name, pod.metadata.namespace, subresource="scale"
                )
            except NotFound:
                continue
            if scale["metadata"].get("uid") == owner.uid:
                found[owner.uid] = scale["spec"].get("replicas", 0)
        return found

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        before = budget.status
        if status == before:
            return
        meta = budget.metadata
        gone = dict.fromkeys(before.disrupted_pods.keys() - status.disrupted_pods.keys())
        patch = {
            "metadata": preconditions(meta),
            "status": {
                "observedGeneration": status.observed_generation,
                "disruptionsAllowed": status.disruptions_allowed,
                "currentHealthy": status.current_healthy,
                "desiredHealthy": status.desired_healthy,
                "expectedPods": status.expected_pods,
                "disruptedPods": {**status.disrupted_pods, **gone},
                # The schema wants a message, even an empty one.
                "conditions": [
                    {"message": "", **msgspec.to_builtins(item)} for item in status.conditions
                ],
            },
        }
        try:
            await self._client.patch(
                PODDISRUPTIONBUDGET, meta.name, meta.namespace, patch=patch, subresource="status"
            )
        except NotFound:
            return


def _selector(budget: PodDisruptionBudget) -> Labels:
    return Labels.of(budget.spec.selector)


def _counted(pod: Pod) -> tuple[object, ...]:
    """What of a pod a budget looks at."""
    ready = [item.status for item in pod.status.conditions if item.type == "Ready"]
    meta = pod.metadata
    return meta.labels, bool(meta.deletion_timestamp), pod.status.phase, ready
