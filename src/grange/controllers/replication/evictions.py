"""Which deletions of a plan are evictions, so that a PodDisruptionBudget is the one account of all.

An available pod that a PodDisruptionBudget covers is taken by its eviction subresource. The server
charges the budget by compare-and-set, so the controller and whoever else evicts never spend the same
allowance. What the budget does not allow, as the cache has it, is not even tried: the pod stays until
the budget changes.

No server evicts a pod that several budgets cover. Each of them has to allow its end, and is charged by
the controller itself (``budget_charge``).

A pod that is not available costs the budget nothing and is deleted. A budget that wants more pods than
its controllers ask for does not count: nothing could keep it.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import PODDISRUPTIONBUDGET
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.selectors import Labels, SelectorError
from grange.api.status import ApiError, Cause, Conflict, NotFound, TooManyRequests
from grange.client.client import Client
from grange.controllers.replication.inputs import Inputs
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.plan import Plan, Removal
from grange.controllers.shared.pod_identity import controller_key


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a PodDisruptionBudget allows now, as the listers have it.

    Attributes:
        name: of the budget.
        selector: of the pods that it covers.
        allowed: so many of them may be disrupted.
        counts: as many pods are asked for as the budget wants; else nothing could keep it.
    """

    name: str
    selector: Labels
    allowed: int
    counts: bool


def allowances(listers: Listers, namespace: str, going: Sequence[Pod]) -> tuple[Allowance, ...]:
    """The allowances of all budgets that cover one of the pods.

    Args:
        listers: know budgets, pods and controllers.
        namespace: of the pods.
        going: pods that are to be taken while they are available.
    """
    found = []
    for budget in listers.budgets(namespace) if going else ():
        try:
            selector = Labels.of(budget.spec.selector)
        except SelectorError:
            continue  # covers nothing
        if any(selector.matches(pod.metadata.labels) for pod in going):
            counts = _can_hold(budget, selector, listers)
            found.append(Allowance(budget.metadata.name, selector, _allowed(budget), counts))
    return tuple(found)


def charged(plan: Plan, inputs: Inputs, found: Sequence[Allowance]) -> Plan:
    """The plan, with evictions for what budgets allow and without what they do not.

    Creations that were to replace pods that stay wait with them.

    Args:
        plan: which may take available pods.
        inputs: what it was made from.
        found: see ``allowances``.
    """
    if not found:
        return plan
    available = inputs.available
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
    """Whether so many pods are asked for as the budget wants."""
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


CAUSE = "DisruptionBudget"


_ATTEMPTS = 5


async def charge(client: Client, pod: Pod, budgets: Sequence[str], now: datetime) -> None:
    """Charge every budget, or none.

    Args:
        client: to the API.
        pod: which is to be deleted.
        budgets: their names, in the namespace of the pod.
        now: wall time.

    Raises:
        TooManyRequests: one of them has nothing left.
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
    """The pod stays: its deletion is not to be waited for."""
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
        status, fence = budget.status, budget.metadata
        if meta.name in status.disrupted_pods:
            return  # an earlier charge without an answer
        if status.observed_generation < fence.generation or status.disruptions_allowed <= 0:
            raise _refused(f"the disruption budget {name} allows no disruption now")
        patch = {
            "metadata": {"uid": fence.uid, "resourceVersion": fence.resource_version},
            "status": {
                "disruptionsAllowed": status.disruptions_allowed - 1,
                "disruptedPods": {meta.name: timestamps.rfc3339(now)},
            },
        }
        with suppress(Conflict, NotFound):
            await client.patch(
                PODDISRUPTIONBUDGET, name, meta.namespace, patch=patch, subresource="status"
            )
            return
    raise _refused(f"the disruption budget {name} is changing")


def _refused(message: str) -> TooManyRequests:
    return TooManyRequests(message, causes=[Cause(CAUSE, message, "")])
