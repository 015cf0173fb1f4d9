"""Trials: whether a pod would pass all filters on a node with some pods taken away or added.

A trial works on a copy of the node's entry. The snapshot's own entries and columns are never
touched, so that no results by row become void because of a trial. Only
the counts of pods (``podindex``) are changed and changed back, and only when some rule about other
nodes concerns the pod: they are what such rules look at.

Most pods ask a node for amounts only. Then a pod more or less is a step from one load to another, and
as equal loads are one object, each load is judged once (``LoadDryRun``), without copies of nodes.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Self

from grange.base.bounded import BoundedDict
from grange.placement.loads import Load
from grange.scheduler.domains import DomainRule
from grange.scheduler.framework import (
    SUCCESS,
    Concerns,
    CycleState,
    Filter,
    Profile,
    Scope,
    Status,
    check_rules,
)
from grange.scheduler.nodeinfo import NodeInfo, charged
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

_KEPT = 10_000  # loads


class DryRun:
    """Tries one pod on nodes.

    Args:
        state: what PreFilter left for this pod.
        snapshot: the cluster. The trial is void when the snapshot is brought up to date and its
            index starts from scratch.
    """

    def __init__(
        self, profile: Profile, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> None:
        self.pod = pod
        self._snapshot = snapshot
        self._profile = profile
        self.state = state
        self._concerns: Concerns | None = None
        self._rules: list[tuple[str, DomainRule]] = []

    @cached_property
    def filters(self) -> list[tuple[str, Filter]]:
        """The filters that may rule out a node, by the name of their plugin."""
        return [(name, item) for name, item in self._profile.filters if item.applies(self.pod)]

    @cached_property
    def by_load(self) -> list[tuple[str, Filter]]:
        """Those of them that look at loads."""
        return [pair for pair in self.filters if pair[1].scope is Scope.LOAD]

    @property
    def rules(self) -> list[tuple[str, DomainRule]]:
        """The rules about other nodes that concern the pod now, in the order of their reasons."""
        concerns = self._profile.concerns(self.pod, self._snapshot.index)
        if concerns != self._concerns:
            self._concerns = concerns
            self._rules = self._profile.rules(self.pod, self._snapshot, concerns)
        return self._rules

    def on(self, node: NodeInfo) -> "WhatIf":
        """Try changes of one node: ``with trial.on(node) as what_if``. One node at a time."""
        return WhatIf(self, node, self._snapshot)


class WhatIf:
    """One node with changes that are undone at the end of the block.

    Attributes:
        node: the changed copy.
    """

    __slots__ = ("_counted", "_index", "_judged", "_real", "_row", "_snapshot", "_trial", "node")

    def __init__(self, trial: DryRun, node: NodeInfo, snapshot: NodeInfoSnapshot) -> None:
        self._trial = trial
        self._real = node
        self._snapshot = snapshot
        self._index = snapshot.index
        self._row = snapshot.table.rows[node.name]
        self._judged = False
        # Asked now, so that what rules count is known to the index before anything is changed.
        self._counted = bool(trial.rules)
        self.node = node.clone()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counted:
            self._index.change(self._row, self.node.pods, self._real.pods)
            self._counted = False

    def add(self, info: PodInfo) -> None:
        """One more pod on the node."""
        if info.has_required_anti_affinity and not self._counted:
            # Its anti-affinity may add a rule about the pod.
            self._counted = True
            self._index.change(self._row, self._real.pods, self.node.pods)
        before = self.node.pods
        self.node.add_pod(info)
        if self._counted:
            self._index.change(self._row, before, self.node.pods)

    def remove(self, info: PodInfo) -> None:
        """One pod less on the node.

        Raises:
            CacheError: it is not there.
        """
        before = self.node.pods
        self.node.remove_pod(info.uid)
        if self._counted:
            self._index.change(self._row, before, self.node.pods)

    def status(self, nominated: Sequence[PodInfo] = ()) -> Status:
        """Whether the pod passes; of a refusal, the first that the reference would give.

        Args:
            nominated: pods nominated to this node, which must fit together with the pod. The pod has to
                pass with them and without them: they may never come.
        """
        if nominated:
            for info in nominated:
                self.add(info)
            found = self._judge()
            for info in reversed(nominated):
                self.remove(info)
            if not found.ok:
                return found
        return self._judge()

    def _judge(self) -> Status:
        trial = self._trial
        pod, state, node = trial.pod, trial.state, self.node
        for name, plugin in trial.by_load if self._judged else trial.filters:
            status = plugin.filter(state, pod, node)
            if status is not SUCCESS and not status.ok:
                return Status(status.code, status.reasons, name)
        self._judged = True  # what depends on the node object alone stays as it is
        if self._counted:
            rules = trial.rules
            for _, rule in rules:
                rule.refresh()
            return check_rules(rules, self._snapshot.table, self._row)
        return SUCCESS


class LoadDryRun:
    """Whether pods of one signature pass, by load.

    Args:
        trial: of any pod of the signature; ``suits`` it.
    """

    __slots__ = ("_filters", "_known", "_pod", "_refusals", "_state", "_stub")

    def __init__(self, trial: DryRun) -> None:
        self._pod = trial.pod
        self._state = trial.state
        self._filters = trial.by_load
        self._known: BoundedDict[Load, Status] = BoundedDict(_KEPT)
        self._refusals: BoundedDict[Status, Status] = BoundedDict(
            _KEPT
        )  # equal ones are one object
        self._stub = NodeInfo("")

    @staticmethod
    def suits(trial: DryRun) -> bool:
        """Whether node objects and loads decide alone, and node objects first."""
        last = trial.filters[len(trial.filters) - len(trial.by_load) :]
        return not trial.rules and last == trial.by_load

    def status(self, load: Load) -> Status:
        """The verdict of the filters on a load, on a node whose object lets the pod pass."""
        found = self._known.get(load)
        if found is None:
            found = self._known[load] = self._ask(load)
        return found

    def status_with(self, load: Load, nominated: Iterable[PodInfo]) -> Status:
        """The same where it has to pass with these pods added, too."""
        more = load
        for info in nominated:
            more = charged(more, info)
        found = self.status(more)
        return self.status(load) if found is SUCCESS and more is not load else found

    def _ask(self, load: Load) -> Status:
        stub = self._stub
        stub.load = load
        for name, plugin in self._filters:
            status = plugin.filter(self._state, self._pod, stub)
            if status is not SUCCESS and not status.ok:
                refusal = Status(status.code, status.reasons, name)
                known = self._refusals.get(refusal)
                if known is None:
                    known = self._refusals[refusal] = refusal
                return known
        return SUCCESS
