"""Disruption budgets: how many available pods the controller itself may delete, and what PodDisruptionBudgets allow.

Rollouts, scaling down, node transfers and users' deletions are granted by the same ``Budget`` in a reconcile, so
together they never delete an available pod that the minimum needs. Terminating pods are unavailable, whatever
deleted them: while others disrupt, the controller waits. A pod that is not available costs nothing. The status of
a pod on a node that is down is stale: it does not count for the minimum, and is deleted only while the minimum
holds without it. Before an available pod is deleted, the others are read live (``confirm``).

An available pod that a PodDisruptionBudget covers is deleted by its eviction subresource. The server charges the
budget by compare-and-set, so the controller and other clients never spend the same allowance. What the budget
does not allow according to the lister is not tried: the pod stays until the budget changes. No server evicts a pod
that several budgets cover. Each of them must allow its deletion, and the controller charges them (``charge``).
A budget that wants more pods than its controllers ask for is ignored, since it could never be met.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from grange.api import rollouts, timestamps
from grange.api.kinds import PODDISRUPTIONBUDGET, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.rollouts import RolloutLimits
from grange.api.selectors import Labels, SelectorError
from grange.api.status import ApiError, Cause, Conflict, NotFound, TooManyRequests
from grange.client.client import Client
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.plan import Inputs, Plan, Removal
from grange.controllers.shared import deletion_order
from grange.controllers.shared.availability import Readiness, active_pods, reported_ready
from grange.controllers.shared.pod_identity import controller_key


@dataclass(frozen=True, slots=True)
class _Allowance:
    """What a PodDisruptionBudget allows now, as the listers have it.

    Attributes:
        name: of the budget.
        selector: of the pods that it covers.
        allowed: so many of them may be disrupted.
        counts: the controllers ask for at least as many pods as the budget wants.
    """

    name: str
    selector: Labels
    allowed: int
    counts: bool


def _allowances(listers: Listers, namespace: str, going: Sequence[Pod]) -> list[_Allowance]:
    """The allowances of all budgets that cover one of the available pods that are to be deleted."""
    found = []
    for budget in listers.budgets(namespace) if going else ():
        try:
            selector = Labels.of(budget.spec.selector)
        except SelectorError:
            continue  # covers nothing
        if any(selector.matches(pod.metadata.labels) for pod in going):
            counts = _can_hold(budget, selector, listers)
            found.append(_Allowance(budget.metadata.name, selector, _allowed(budget), counts))
    return found


def charged(plan: Plan, inputs: Inputs, listers: Listers) -> Plan:
    """The plan with evictions for what budgets allow, and without what they do not."""
    available = inputs.available
    going = [item.pod for item in plan.delete if item.pod.metadata.uid in available]
    found = _allowances(listers, inputs.controller.metadata.namespace, going)
    if not found:
        return plan
    spent: Counter[str] = Counter()
    delete: list[Removal] = []
    refused: list[str] = []
    for item in plan.delete:
        taken = item.pod.metadata.uid in available
        covering = [
            one for one in found if taken and one.selector.matches(item.pod.metadata.labels)
        ]
        charges = [one for one in covering if one.counts]
        short = [one.name for one in charges if one.allowed <= spent[one.name]]
        if short:
            refused.append(short[0])
            continue
        names = [one.name for one in charges]
        spent.update(names)
        if len(covering) == 1:
            delete.append(replace(item, evict=bool(names)))
        else:
            delete.append(replace(item, budgets=tuple(names)))
    if not refused:
        return replace(plan, delete=tuple(delete))
    return plan.keeping(tuple(delete), len(refused), budget=refused[0])


def _allowed(budget: PodDisruptionBudget) -> int:
    status, generation = budget.status, budget.metadata.generation
    return 0 if status.observed_generation < generation else status.disruptions_allowed


def _can_hold(budget: PodDisruptionBudget, selector: Labels, listers: Listers) -> bool:
    """Whether controllers ask for as many pods as the budget wants."""
    namespace = budget.metadata.namespace
    covered: Sequence[Pod] = [
        pod for pod in listers.pods.store.list(namespace) if selector.matches(pod.metadata.labels)
    ]
    owners = [controller_key(pod) for pod in covered]
    wanted = owners.count(None)
    for key, uid in {owner for owner in owners if owner is not None}:
        controller = listers.controllers.store.get(key)
        if controller is not None and controller.metadata.uid == uid:
            wanted += controller.spec.replicas
    return budget.status.desired_healthy <= wanted


async def confirm(client: Client, inputs: Inputs, plan: Plan, readiness: Readiness) -> bool:
    """Whether enough other pods are ready now for the available pods that a plan deletes, if it deletes some.

    They are read live: a watch that hangs shows pods as they were (see ``shared.availability``).

    Raises:
        ApiError: pods cannot be read.
    """
    available = inputs.available
    going = {removal.pod.metadata.uid for removal in plan.delete}
    if not available & going:
        return True
    staying = [
        pod
        for pod in await active_pods(client, inputs.controller)
        # One that is marked for deletion may go at any time, so it does not count.
        if deletion_order.is_ready(pod, inputs.down)
        and pod.metadata.uid in available - going
        and not pods.is_disruption_target(pod)
    ]
    sure = len(await reported_ready(client, inputs.controller, staying, readiness))
    allowed = inputs.limits or limits(inputs.controller)
    return sure >= min(allowed.minimum, len(available - going))


CAUSE = "DisruptionBudget"


_ATTEMPTS = 5


async def charge(client: Client, pod: Pod, budgets: Sequence[str], now: datetime) -> None:
    """Charge every budget of these names, or none.

    Raises:
        TooManyRequests: one of them allows nothing.
        ApiError: the server cannot write.
    """
    charged: list[str] = []
    try:
        for name in budgets:
            await _charge_one(client, pod, name, now)
            charged.append(name)
    except ApiError:
        await give_back(client, pod, charged)
        raise


async def give_back(client: Client, pod: Pod, budgets: Sequence[str]) -> None:
    """Withdraw charges: the pod stays."""
    meta = pod.metadata
    patch = {"status": {"disruptedPods": {meta.name: None}}}
    for name in budgets:
        with suppress(ApiError):  # the disruption controller does it after a while
            await client.patch(
                PODDISRUPTIONBUDGET, name, meta.namespace, patch=patch, subresource="status"
            )


async def _charge_one(client: Client, pod: Pod, name: str, now: datetime) -> None:
    meta = pod.metadata
    for _ in range(_ATTEMPTS):
        try:
            budget: PodDisruptionBudget = await client.get(
                PODDISRUPTIONBUDGET, name, meta.namespace
            )
        except NotFound:
            return  # it covers nothing any more
        status = budget.status
        if meta.name in status.disrupted_pods:
            return  # an earlier charge without an answer
        if _allowed(budget) <= 0:
            raise _refused(f"the disruption budget {name} allows no disruption now")
        charged = {
            "disruptionsAllowed": status.disruptions_allowed - 1,
            "disruptedPods": {meta.name: timestamps.rfc3339(now)},
        }
        with suppress(Conflict, NotFound):
            await client.patch_as_read(
                PODDISRUPTIONBUDGET, budget, {"status": charged}, subresource="status"
            )
            return
    raise _refused(f"the disruption budget {name} is changing")


def _refused(message: str) -> TooManyRequests:
    return TooManyRequests(message, causes=[Cause(CAUSE, message, "")])


class Budget:
    """How many of the available pods may still be deleted; used up as pods are granted.

    Pods whose status is stale (``unknown``) were ready according to it.
    """

    def __init__(
        self, available: AbstractSet[str], minimum: int, unknown: AbstractSet[str] = frozenset()
    ) -> None:
        self._available = set(available)
        self._unknown = unknown
        self._minimum = minimum

    @property
    def spare(self) -> int:
        """Available pods that may still be deleted."""
        return max(0, len(self._available) - self._minimum)

    def cost(self, pod: Pod) -> int:
        """The cost of deleting a pod; pods that certainly serve no request cost least."""
        if pod.metadata.uid in self._available:
            return 3
        if pod.metadata.uid in self._unknown:
            return 2
        return 1 if pod.spec.node_name else 0

    def take(self, pod: Pod) -> bool:
        """Grant the deletion of a pod; a pod that is not available is always granted."""
        uid = pod.metadata.uid
        if uid in self._unknown:
            return len(self._available) >= self._minimum
        if uid not in self._available:
            return True
        if not self.spare:
            return False
        self._available.remove(uid)
        return True

    def granted(self, ranked: Iterable[Pod], count: int) -> list[Pod]:
        """The first ``count`` pods of a ranking that may be deleted."""
        granted: list[Pod] = []
        for pod in ranked:
            if len(granted) >= count:
                break
            if self.take(pod):
                granted.append(pod)
        return granted


def limits(controller: ReplicationController, *, room: int | None = None) -> RolloutLimits:
    """What ``spec.rollout`` allows.

    Args:
        controller: whose.
        room: how many more pods could be placed now; None if unknown.
    """
    return rollouts.limits(controller.spec.rollout, controller.spec.replicas, room=room)
