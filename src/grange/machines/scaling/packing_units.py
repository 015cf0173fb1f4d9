"""Units of packing: a pod alone, or the waiting members of a PodGroup, which are placed whole or not at all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import (
    GROUP_LABEL,
    REQUIRED,
    SCHEDULED_CONDITION,
    PodGroup,
    PodGroupPart,
)
from grange.machines.scaling.packing_pods import PackedPod, PodRules, with_domain

OVER_QUOTA = "OverQuota"
"""Reason of a PodGroup that waits for the quota of its queue: no machine helps."""


@dataclass(slots=True, eq=False)
class PackingUnit:
    """What is placed together.

    Attributes:
        pods: in the order in which they are tried.
        needed: so many of them must be placed for any to be.
        parts: labels of parts, and how many of each must be among those.
        domain_key: label of nodes whose value must be the same for all; empty for none.
        placed_on: nodes of members that have one, which fix that value.
        domain: that value, once some of them are placed.
        step: how many preferences are dropped.
    """

    pods: list[PackedPod]
    needed: int = 1
    parts: Sequence[tuple[Mapping[str, str], int]] = ()
    domain_key: str = ""
    placed_on: tuple[str, ...] = ()
    domain: str = ""
    step: int = 0

    @property
    def order(self) -> tuple[int, int, str, str]:
        """That of its largest pod."""
        return self.pods[0].order

    @property
    def priority(self) -> int:
        """The highest of its pods."""
        return max(pod.priority for pod in self.pods)

    @property
    def depends(self) -> bool:
        """Whether it may fit later, only because other pods have been placed."""
        return any(
            rules.terms.affinity or rules.spread
            for pod in self.pods
            for rules in (self.rules(pod),)
        )

    def rules(self, pod: PackedPod, domain: str = "") -> PodRules:
        """The rules of one of its pods at the present step."""
        rules = pod.steps[min(self.step, len(pod.steps) - 1)]
        return with_domain(rules, self.domain_key, domain) if domain else rules

    def relax(self) -> bool:
        """Drop one preference more; whether there was one."""
        if all(self.step >= len(pod.steps) - 1 for pod in self.pods):
            return False
        self.step += 1
        return True

    def done(self, placed: Sequence[PackedPod]) -> None:
        """Leave out pods that have been placed; the others may follow one by one."""
        if not placed:
            return
        gone = {pod.uid for pod in placed}
        self.pods = [pod for pod in self.pods if pod.uid not in gone]
        self.needed = max(1, self.needed - len(placed))
        self.parts = [
            (labels, max(0, number - sum(_has(pod, labels) for pod in placed)))
            for labels, number in self.parts
        ]

    def enough(self, placed: Sequence[PackedPod]) -> bool:
        """Whether those that were placed may stay."""
        if len(placed) < self.needed:
            return False
        return all(
            sum(_has(pod, labels) for pod in placed) >= number for labels, number in self.parts
        )


@dataclass(slots=True)
class PackingGroup:
    """What is known of a PodGroup.

    Attributes:
        group: None where it does not exist.
        waiting: members that wait.
        placed: members that have a node.
    """

    group: PodGroup | None
    waiting: list[PackedPod] = field(default_factory=list)
    placed: list[Pod] = field(default_factory=list)


def units_of(
    pods: Iterable[PackedPod], groups: Iterable[PodGroup], placed: Iterable[Pod]
) -> tuple[list[PackingUnit], list[tuple[PackedPod, str]]]:
    """The units, and pods that cannot be placed whatever is ordered, with the reason."""
    known = {str(group.key): PackingGroup(group) for group in groups}
    units: list[PackingUnit] = []
    for pod in pods:
        if pod.group:
            known.setdefault(pod.group, PackingGroup(None)).waiting.append(pod)
        else:
            units.append(PackingUnit([pod]))
    for running in placed:
        label = running.metadata.labels.get(GROUP_LABEL, "")
        members = known.get(f"{running.metadata.namespace}/{label}") if label else None
        if members is not None:
            members.placed.append(running)
    refused: list[tuple[PackedPod, str]] = []
    for name, members in known.items():
        if not members.waiting:
            continue
        unit = _unit(members)
        if isinstance(unit, str):
            refused += [(pod, f"PodGroup {name}: {unit}") for pod in members.waiting]
        else:
            units.append(unit)
    return units, refused


def _unit(members: PackingGroup) -> PackingUnit | str:
    group = members.group
    if group is None:
        return "it does not exist"
    for condition in group.status.conditions:
        if condition.type == SCHEDULED_CONDITION and condition.reason == OVER_QUOTA:
            return f"it waits for quota: {condition.message}"
    spec = group.spec
    needed = max(1, spec.min_member - len(members.placed))
    if len(members.waiting) < needed:
        there = len(members.waiting) + len(members.placed)
        return f"{there} of {spec.min_member} members are there"
    topology = spec.topology
    required = topology is not None and topology.mode == REQUIRED
    return PackingUnit(
        sorted(members.waiting, key=lambda pod: pod.order),
        needed,
        [_missing(part, members.placed) for part in spec.min_parts],
        topology.key if required and topology is not None else "",
        tuple(pod.spec.node_name for pod in members.placed),
    )


def _missing(part: PodGroupPart, placed: Sequence[Pod]) -> tuple[Mapping[str, str], int]:
    there = sum(
        all(pod.metadata.labels.get(key) == value for key, value in part.match_labels.items())
        for pod in placed
    )
    return part.match_labels, max(0, part.min_member - there)


def _has(pod: PackedPod, labels: Mapping[str, str]) -> bool:
    own = dict(pod.steps[-1].labels)
    return all(own.get(key) == value for key, value in labels.items())


def all_rules(units: Iterable[PackingUnit]) -> Iterator[PodRules]:
    """Every rules of every pod."""
    for unit in units:
        for pod in unit.pods:
            yield from pod.steps
