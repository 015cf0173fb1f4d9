"""Disruption budgets in the choice of victims: how many more pods may be disrupted.

DisruptionBudgets are honoured as far as possible, not beyond: a node whose victims violate none is preferred to
one whose victims do, but a more important pod is not kept waiting by a budget.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.selectors import Labels
from grange.base.bounded import BoundedDict
from grange.scheduler.changelog import ChangeLog
from grange.scheduler.podinfo import LabelSet, PodInfo

_LABEL_SETS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """One PodDisruptionBudget.

    Attributes:
        namespace, name: which.
        selector: of its pods; one that is empty covers none here.
        allowed: how many of them may be disrupted now.
        disrupted: names of pods whose disruption is counted already.
    """

    namespace: str
    name: str
    selector: Labels
    allowed: int
    disrupted: frozenset[str] = frozenset()

    def selects(self, info: PodInfo) -> bool:
        """Whether it covers the pod."""
        labels = info.pod.metadata.labels
        return bool(self.selector.requirements) and bool(labels) and self.selector.matches(labels)


class DisruptionBudgets:
    """The budgets of a cluster, by namespace.

    Attributes:
        moves: which budgets changed, as (namespace, name); one that is added, is removed or covers
            other pods from now on makes all readers start over.
    """

    def __init__(self, budgets: Iterable[DisruptionBudget] = ()) -> None:
        self.moves: ChangeLog[tuple[str, str]] = ChangeLog()
        self._by_namespace: dict[str, dict[str, DisruptionBudget]] = {}
        # The names of those that cover pods of a label set, as long as no selector changes.
        self._by_label_set: BoundedDict[LabelSet, tuple[str, ...]] = BoundedDict(_LABEL_SETS_MAX)
        for budget in budgets:
            self.put(budget)

    def put(self, budget: DisruptionBudget) -> None:
        """Add or update a budget."""
        there = self._by_namespace.setdefault(budget.namespace, {})
        known = there.get(budget.name)
        if known == budget:
            return
        there[budget.name] = budget
        if known is not None and known.selector == budget.selector:
            self.moves.note((budget.namespace, budget.name))
        else:
            self._reset()

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget; an unknown one is fine."""
        there = self._by_namespace.get(namespace, {})
        if there.pop(name, None) is not None:
            self._reset()
            if not there:
                del self._by_namespace[namespace]

    def update(self, budget: PodDisruptionBudget) -> None:
        """Take a budget from the API."""
        meta, status = budget.metadata, budget.status
        self.put(
            DisruptionBudget(
                meta.namespace,
                meta.name,
                Labels.of(budget.spec.selector),
                status.disruptions_allowed,
                frozenset(status.disrupted_pods),
            )
        )

    def delete(self, budget: PodDisruptionBudget) -> None:
        """Remove a budget that was deleted in the API."""
        self.remove(budget.metadata.namespace, budget.metadata.name)

    def of(self, namespace: str) -> Iterable[DisruptionBudget]:
        """The budgets of a namespace."""
        return self._by_namespace.get(namespace, {}).values()

    def covering(self, pods: Iterable[PodInfo]) -> dict[tuple[str, str], None]:
        """The budgets, as (namespace, name), that cover any of these pods."""
        return {
            (info.pod.metadata.namespace, name): None for info in pods for name in self._names(info)
        }

    def _names(self, info: PodInfo) -> tuple[str, ...]:
        """The names of the budgets that cover a pod."""
        labels = info.label_set()
        found = self._by_label_set.get(labels)
        if found is None:
            there = self.of(info.pod.metadata.namespace)
            found = tuple([budget.name for budget in there if budget.selects(info)])
            self._by_label_set[labels] = found
        return found

    def _reset(self) -> None:
        """Forget which budgets cover which pods."""
        self._by_label_set.clear()
        self.moves.forget()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_namespace)

    def split(self, pods: Sequence[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Those whose disruption would violate a budget, and the others, each in the given order.

        Every pod that is not counted as disrupted yet is charged to all budgets that cover it, one
        after another: of two pods of a budget that allows one, the second violates it.
        """
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        left: dict[tuple[str, str], int] = {}
        for info in pods:
            violates = False
            meta = info.pod.metadata
            for name in self._names(info):
                budget = self._by_namespace[meta.namespace][name]
                if meta.name not in budget.disrupted:
                    key = (meta.namespace, name)
                    left[key] = left.get(key, budget.allowed) - 1
                    violates = violates or left[key] < 0
            (violating if violates else others).append(info)
        return violating, others
