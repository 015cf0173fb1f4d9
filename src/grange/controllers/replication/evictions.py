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
from collections.abc import Iterable, Sequence
from dataclasses import replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.selectors import Labels, SelectorError
from grange.controllers.replication import logic
from grange.controllers.replication.caches import Caches
from grange.controllers.shared.pod_identity import controller_key


def charged(plan: logic.Plan, situation: logic.Situation, caches: Caches) -> logic.Plan:
    """The plan, with evictions for what budgets allow and without what they do not.

    Creations that were to follow what is left out wait with it.

    Args:
        plan: which may take available pods.
        situation: what it was made from.
        caches: know the budgets.
    """
    available = situation.available or frozenset()
    taken = [item for item in plan.delete if item.pod.metadata.uid in available]
    budgets = caches.budgets(situation.controller.metadata.namespace) if taken else ()
    if not budgets:
        return plan
    spent: Counter[str] = Counter()
    delete: list[logic.Removal] = []
    refused: list[str] = []
    for item in plan.delete:
        covering = [] if item not in taken else _covering(item.pod, budgets)
        names = [one.metadata.name for one in covering if _can_hold(one, caches)]
        short = [
            one.metadata.name
            for one in covering
            if one.metadata.name in names and _allowed(one) <= spent[one.metadata.name]
        ]
        if short:
            refused.append(short[0])
            continue
        spent.update(names)
        if len(covering) == 1:
            delete.append(replace(item, evict=bool(names)))
        else:
            delete.append(replace(item, budgets=tuple(names)))
    if not refused:
        return replace(plan, delete=tuple(delete))
    return replace(
        plan,
        delete=tuple(delete),
        create=plan.create[: max(0, len(plan.create) - len(refused))],
        kept=plan.kept + len(refused),
        budget=refused[0],
    )


def _covering(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    return [one for one in budgets if _selects(one, pod)]


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    try:
        return Labels.of(budget.spec.selector).matches(pod.metadata.labels)
    except SelectorError:
        return False


def _allowed(budget: PodDisruptionBudget) -> int:
    status, generation = budget.status, budget.metadata.generation
    return 0 if status.observed_generation < generation else status.disruptions_allowed


def _can_hold(budget: PodDisruptionBudget, caches: Caches) -> bool:
    """Whether so many pods are asked for as the budget wants."""
    namespace = budget.metadata.namespace
    covered: Sequence[Pod] = [
        pod for pod in caches.pods.store.list(namespace) if _selects(budget, pod)
    ]
    owners = [controller_key(pod) for pod in covered]
    wanted = owners.count(None)
    for key, uid in {owner for owner in owners if owner is not None}:
        controller = caches.controllers.store.get(key)
        if controller is not None and controller.metadata.uid == uid:
            wanted += controller.spec.replicas
    return budget.status.desired_healthy <= wanted
