"""A cluster to preempt in, and a naive evaluator that states what is right."""

from typing import Any, Self

import msgspec
from tests.support.scheduler_cluster import PROFILE, Cluster

from grange.api.kinds.pod import DISRUPTION_TARGET
from grange.api.meta import Condition
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.engine import reference
from grange.scheduler.framework import CycleState, Handle, PostFilterResult
from grange.scheduler.nominator import Nominated, Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import BY_SCHEDULER, Evaluator
from grange.scheduler.preemption.victim_selection import CandidateSettings, importance, started
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders


def pod(
    name: str,
    priority: int = 0,
    cpu: str = "1",
    *,
    memory: str = "",
    since: str = "",
    **more: Any,
) -> PodInfo:
    requests = {"cpu": cpu, "memory": memory} if memory else {"cpu": cpu}
    found = builders.pod(name, requests=requests, priority=priority, **more)
    status = msgspec.structs.replace(found.status, start_time=since or None)
    return PodInfo.of(msgspec.structs.replace(found, status=status))


def leaving(info: PodInfo, *, preempted: bool) -> PodInfo:
    """The same on its way out, perhaps as a victim of the scheduler."""
    marked = Condition(type=DISRUPTION_TARGET, status="True", reason=BY_SCHEDULER)
    pod = info.pod
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")
    status = msgspec.structs.replace(pod.status, conditions=(marked,) if preempted else ())
    return PodInfo.of(msgspec.structs.replace(pod, metadata=meta, status=status))


class World(Cluster):
    """A cluster with nominations, budgets, and an evaluator over them."""

    def __init__(self, settings: CandidateSettings | None = None, offset: int = 0) -> None:
        super().__init__()
        # The naive way moves pods about; what is kept must not be called stale by that.
        self.truth = NodeInfoSnapshot()
        self.nominator = Nominator()
        self.budgets = DisruptionBudgets()
        self.settings = settings or CandidateSettings()
        self.offset = offset
        handle = Handle(PROFILE, self.snapshot, self.nominator, self.budgets, lambda n: offset % n)
        self.evaluator = Evaluator(handle, self.settings)

    def nodes(self, *names: str, cpu: str = "4", **options: Any) -> Self:
        for at, name in enumerate(names):
            capacity = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
            node = builders.node(name, zone=f"z{at % 2}", capacity=capacity, **options)
            self.cache.add_node(node)
        return self

    def ask(self, info: PodInfo) -> PostFilterResult:
        self.refresh()
        return self.evaluator(CycleState(), info)

    def victims(self, info: PodInfo) -> tuple[str | None, list[str]]:
        found = self.ask(info)
        return found.nominated, [victim.pod.metadata.name for victim in found.victims]

    # --- the naive evaluator -----------------------------------------------------------------

    def passes(self, info: PodInfo, node: str) -> tuple[bool, bool]:
        """Whether the pod passes on the node as it is, and whether a refusal is final."""
        reserved = self.nominator.nominations_for(info) or Nominated()
        reserved = Nominated(level={name: reserved.on(name) for name in reserved.level})
        judge = reference._Judge(PROFILE, CycleState(), info, self.truth, reserved)
        status = judge.status(self.truth.node_info_map[node])
        return status.ok, status.code.value == "UnschedulableAndUnresolvable"

    def select(self, info: PodInfo, node: str) -> tuple[list[PodInfo], int] | None:
        entry = self.truth.node_info_map[node]
        lower = sorted(
            (i for i in entry.pods if i.pod.spec.priority < info.pod.spec.priority), key=importance
        )
        if not lower or self.passes(info, node)[1]:
            return None
        left: dict[str, int] = {}
        breaking: list[PodInfo] = []
        others: list[PodInfo] = []
        for item in lower:
            broken = False
            for budget in self.budgets.of("default"):
                counted = item.pod.metadata.name in budget.disrupted
                if budget.selects(item) and not counted:
                    left[budget.name] = left.get(budget.name, budget.allowed) - 1
                    broken |= left[budget.name] < 0
            (breaking if broken else others).append(item)
        for item in lower:
            self.truth.take_out(item)
        gone, violations = [], 0
        fits = self.passes(info, node)[0]
        for item in (*breaking, *others) if fits else ():
            self.truth.put_back(item.uid)
            if not self.passes(info, node)[0]:
                self.truth.take_out(item)
                gone.append(item)
                violations += any(item is other for other in breaking)
        self.truth.undo_trials()
        return (sorted(gone, key=importance), violations) if fits else None

    def expected(self, info: PodInfo) -> tuple[str, list[str]] | None:
        """By the book: every node in turn, from the offset on."""
        self.cache.update_node_info_snapshot(self.truth)
        names = [node.name for node in self.truth.node_info_list if self.open(info, node.name)]
        if not names:
            return None
        start = self.offset % len(names)
        wanted = self.settings.wanted(len(names))
        found: list[tuple[tuple[float, ...], int, str, list[PodInfo]]] = []
        harmless = False
        for at, name in enumerate(names[start:] + names[:start]):
            chosen = self.select(info, name)
            if chosen is None:
                continue
            gone, violations = chosen
            highest = max(i.pod.spec.priority for i in gone)
            rank = (
                violations,
                highest,
                sum(i.pod.spec.priority + 2**31 for i in gone),
                len(gone),
                -min(started(i) for i in gone if i.pod.spec.priority == highest),
            )
            found.append((rank, at, name, gone))
            harmless |= not violations
            if harmless and len(found) >= wanted:
                break
        if not found:
            return None
        _, _, name, gone = min(found, key=lambda item: (item[0], item[1]))
        return name, [item.pod.metadata.name for item in gone]

    def open(self, info: PodInfo, name: str) -> bool:
        """Whether the node does not refuse the pod whatever runs there."""
        entry = self.truth.node_info_map[name]
        pods = list(entry.pods)
        for item in pods:
            self.truth.take_out(item)
        status = reference._filter(PROFILE, CycleState(), info, entry)
        self.truth.undo_trials()
        return status.ok
