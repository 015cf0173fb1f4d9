"""Plugins that state a rule about one attribute of a node; the other forms follow from it.

A plugin compares a *demand*, what it reads of the pod, with an *attribute*, what it reads of a node: of one, of
many rows, and, for queueing hints, of a node object or of a pod that left. Rows with equal values are judged once.
From ``allows`` and ``score_value`` come the forms for one node and for many rows, the counted
reasons, the signature, the queueing hints and the explanation. A plugin overrides a derived form only
where that is measurably faster; the parity tests compare all of them. Amounts have kernels because a new
class of pods looks at every load: without them it takes 14 times as long on 5,000 nodes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import Pod
from grange.placement import ports_and_disks
from grange.placement.columns import ABSENT, Integers, Mask, NodeTable, Rows
from grange.placement.loads import Load
from grange.placement.ports_and_disks import Holdings
from grange.scheduler.clusterevents import Action, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import (
    PASS,
    SUCCESS,
    Code,
    CycleState,
    Normalise,
    Plugin,
    PreFilterResult,
    Scope,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_explanation import PluginExplanation, Refusals, Remedy
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

D = TypeVar("D", bound=Hashable)
V = TypeVar("V")

# --- what plugins read of a node ------------------------------------------------------------------

NO_ACTION = Action(0)

Values: TypeAlias = tuple[NDArray[np.integer], Sequence[V]]
"""By row, the number of its value; and the values."""


@dataclass(frozen=True, slots=True)
class Attribute(Generic[V]):
    """One attribute of nodes.

    Attributes:
        scope: for how long a verdict about it holds.
        columns: its values on rows, where the table has them.
        of_object: its value according to the node object alone; only with scope ``NODE``.
        of_pod: its value on a node that runs just this pod; only where a pod adds to the value.
        action: the updates of a node object that change it.
    """

    scope: Scope
    of: Callable[[NodeInfo], V]
    columns: Callable[[NodeTable, Rows], Values[V]] | None = None
    of_object: Callable[[Node], V] | None = None
    of_pod: Callable[[Pod], V] | None = None
    action: Action = NO_ACTION

    def of_rows(self, table: NodeTable, rows: Rows) -> Values[V]:
        """Its values on rows; the same object is one value."""
        if self.columns is not None:
            return self.columns(table, rows)
        numbers: dict[int, int] = {}
        kept: list[V] = []  # so that no identity is used again
        of_row = []
        read, entries = self.of, table.entries
        for row in range(*rows.indices(table.size)) if isinstance(rows, slice) else rows.tolist():
            value = read(entries[row])
            number = numbers.setdefault(id(value), len(kept))
            if number == len(kept):
                kept.append(value)
            of_row.append(number)
        return np.asarray(of_row, np.int64), kept


def _of_object(
    read: Callable[[Node], V],
    action: Action,
    absent: V,
    columns: Callable[[NodeTable, Rows], Values[V]] | None = None,
) -> Attribute[V]:
    def of(info: NodeInfo) -> V:
        return absent if info.node is None else read(info.node)

    return Attribute(Scope.NODE, of, columns, of_object=read, action=action)


def label(key: str) -> Attribute[str | None]:
    """The value of a label; None for nodes without it."""
    return _of_object(
        lambda node: node.metadata.labels.get(key),
        Action.NODE_LABEL,
        None,
        # The values are numbered from 0, and ABSENT is the number before.
        lambda table, rows: (
            table.labels(key).ids[rows] - ABSENT,
            (None, *table.labels(key).values),
        ),
    )


def annotation(key: str) -> Attribute[str | None]:
    """The value of an annotation; None for nodes without it."""
    return _of_object(lambda node: node.metadata.annotations.get(key), Action.NODE_ANNOTATION, None)


NameAndLabels: TypeAlias = tuple[str, Mapping[str, str]]
_NAMELESS: NameAndLabels = ("", {})
_NO_FEATURES: Collection[str] = frozenset()

NAME: Attribute[str] = _of_object(lambda node: node.metadata.name, NO_ACTION, "")
NAME_AND_LABELS: Attribute[NameAndLabels] = _of_object(
    lambda node: (node.metadata.name, node.metadata.labels), Action.NODE_LABEL, _NAMELESS
)
UNSCHEDULABLE: Attribute[bool] = _of_object(
    lambda node: node.spec.unschedulable,
    Action.NODE_TAINT,
    absent=False,
    columns=lambda table, rows: (table.unschedulable[rows].view(np.int8), (False, True)),
)
TAINTS: Attribute[Sequence[Taint]] = _of_object(
    lambda node: node.spec.taints,
    Action.NODE_TAINT,
    (),
    lambda table, rows: (table.taint_set[rows], table.taint_sets),
)
DECLARED_FEATURES: Attribute[Collection[str]] = _of_object(
    lambda node: node.status.declared_features, Action.NODE_FEATURES, _NO_FEATURES
)
EXCLUSIVE_USE: Attribute[Holdings] = Attribute(
    Scope.LOAD,
    lambda info: info.usage.ports,
    of_pod=lambda pod: ports_and_disks.held(
        ports_and_disks.NO_HOLDINGS,
        (*ports_and_disks.host_ports(pod.spec), *ports_and_disks.inline_disks(pod.spec)),
    ),
)
"""Host ports and inline disks in use."""

LOAD: Attribute[Load] = Attribute(Scope.LOAD, lambda info: info.load)
"""What the node offers and what its pods use."""


# --- filters and scores ---------------------------------------------------------------------------


class NodePlugin(ABC, Generic[D, V]):
    """A filter, a score, or both, over one attribute.

    Attributes:
        name: as in kube-scheduler's configuration.
        scale: the largest score it gives.
        resolvable: whether a node that refuses may accept once pods are gone.
        normalise: how its scores become 0 to 100.
    """

    name: ClassVar[str]
    attribute: Attribute[V]
    weight: int = 1
    scale: int = 100

    @abstractmethod
    def demand(self, pod: PodInfo) -> D:
        """What it reads of the pod; a false value means that it does not apply to the pod."""

    def applies(self, pod: PodInfo) -> bool:
        """Whether it could distinguish nodes; a function of the signature."""
        return bool(self.demand(pod))

    def signature(self, pod: PodInfo) -> Hashable:
        """What of the pod the verdicts depend on."""
        return self.demand(pod)

    @property
    def scope(self) -> Scope:
        """What a verdict depends on, besides the pod."""
        return self.attribute.scope

    def events(self) -> tuple[Registration, ...]:
        """After which events refused pods are worth another try."""
        return ()

    def plugin(self) -> Plugin:
        """The plugin, as ``plugins`` registers it."""
        return Plugin(
            self.name,
            filter=self if isinstance(self, NodeFilter) else None,
            score=self if isinstance(self, NodeScore) else None,
            weight=self.weight,
            scale=self.scale,
            signature=self.signature,
            events=self.events(),
        )


class NodeFilter(NodePlugin[D, V]):
    """Rules nodes out by one attribute."""

    reason: str = ""
    resolvable: bool = False

    @abstractmethod
    def allows(self, demand: D, value: V) -> bool:
        """Whether a node with this value accepts the pod: the rule."""

    def refusal(self, demand: D, value: V) -> Status:
        """Why a node with this value refuses."""
        code = Code.UNSCHEDULABLE if self.resolvable else Code.UNRESOLVABLE
        return Status(code, (self.reason,))

    # --- what follows ------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Whether the pod may run on the node."""
        demand, value = self.demand(pod), self.attribute.of(node)
        return SUCCESS if self.allows(demand, value) else self.refusal(demand, value)

    def filter_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Mask:
        """Where the pod may run."""
        demand = self.demand(pod)
        numbers, values = self.attribute.of_rows(table, rows)
        verdicts = np.fromiter((self.allows(demand, item) for item in values), np.bool_)
        found: Mask = verdicts.take(numbers)
        return found

    def count_reasons(
        self, pod: PodInfo, table: NodeTable, rows: Integers
    ) -> list[tuple[str, int]]:
        """For refused rows: each reason and how many have it."""
        demand, found = self.demand(pod), dict[str, int]()
        numbers, values = self.attribute.of_rows(table, rows)
        for number, count in enumerate(np.bincount(numbers).tolist()):
            if count:
                for reason in self.refusal(demand, values[number]).reasons:
                    found[reason] = found.get(reason, 0) + count
        return [*found.items()]

    def events(self) -> tuple[Registration, ...]:
        """A node comes or changes, and accepts the pod; a pod goes that alone kept it out."""
        attribute = self.attribute
        action = Action.ADD | attribute.action
        if attribute.of_object is not None:
            return (Registration(ClusterEvent(Subject.NODE, action), self.helped_by_node),)
        gone = ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE)
        return (
            Registration(gone, self.helped_by_deletion if attribute.of_pod else None),
            Registration(ClusterEvent(Subject.NODE, action)),
        )

    def helped_by_node(self, pod: PodInfo, before: Object, after: Object) -> bool:
        """Whether a node accepts the pod that did not before."""
        read = self.attribute.of_object
        if read is None or not isinstance(after, Node):
            return True
        demand = self.demand(pod)
        if not self.allows(demand, read(after)):
            return False
        return not (isinstance(before, Node) and self.allows(demand, read(before)))

    def helped_by_deletion(self, pod: PodInfo, before: Object, after: Object) -> bool:
        """Whether the pod that went would refuse the pod by itself."""
        read = self.attribute.of_pod
        if read is None or not isinstance(before, Pod):
            return True
        return not self.allows(self.demand(pod), read(before))

    # --- the explanation ---------------------------------------------------------------------

    def obstacles(self, demand: D, value: V) -> list[str]:
        """What is in the way on a node that refuses, each."""
        return [reason.removeprefix("node(s) ") for reason in self.refusal(demand, value).reasons]

    def remedies(self, demand: D, value: V) -> list[Remedy]:
        """What would help on such nodes."""
        return []

    def explain(self, refusals: Refusals) -> PluginExplanation:
        """Why nodes refuse the pod."""
        return _Explanation(self, refusals)


class _Explanation(Generic[D, V]):
    """What a filter gives as obstacles and remedies, by value."""

    def __init__(self, rule: NodeFilter[D, V], refusals: Refusals) -> None:
        table = refusals.snapshot.table
        self._rule, self._demand = rule, rule.demand(refusals.pod)
        self._numbers, values = rule.attribute.of_rows(table, table.all)
        refused = {*np.unique(self._numbers[refusals.refused]).tolist()}
        self._values = values
        self._obstacles = [
            rule.obstacles(self._demand, value) if at in refused else []
            for at, value in enumerate(values)
        ]
        counts = np.fromiter(map(len, self._obstacles), np.int64)
        self.lacks: Integers = np.where(refusals.refused, counts[self._numbers], 0)
        self.severity = refusals.no_severity()

    def missing(self, row: int) -> list[str]:
        """The obstacles of the row's value."""
        return self._obstacles[int(self._numbers[row])]

    def changes(self, rows: Integers) -> list[Remedy]:
        """The remedies of each value; those with one text together."""
        found: dict[str, Remedy] = {}
        numbers = self._numbers[rows]
        for number in np.unique(numbers).tolist():
            for item in self._rule.remedies(self._demand, self._values[number]):
                mine, before = rows[numbers == number], found.get(item.text)
                if before is not None:
                    mine = np.concatenate([before.rows, mine])
                found[item.text] = replace(item, rows=mine)
        return sorted(found.values(), key=lambda item: (item.cost, -len(item.rows)))


class NodeScore(NodePlugin[D, V]):
    """Ranks nodes by one attribute."""

    normalise: Normalise = Normalise.NONE

    @abstractmethod
    def score_value(self, demand: D, value: V) -> int:
        """The raw score of a node with this value, not negative."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The raw score of the node."""
        return self.score_value(self.demand(pod), self.attribute.of(node))

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """The raw scores of the rows."""
        demand = self.demand(pod)
        numbers, values = self.attribute.of_rows(table, rows)
        scores = np.fromiter((self.score_value(demand, item) for item in values), np.int64)
        found: Integers = scores.take(numbers)
        return found


class PodFilter:
    """Refuses pods that no node can run.

    Args:
        refusal: why no node can run a pod; empty if some may.
    """

    def __init__(self, refusal: Callable[[PodInfo], str]) -> None:
        self._refusal = refusal

    def for_each(self, pod: PodInfo) -> bool:
        """Only pods that it refuses: the reason is the pod's own."""
        return bool(self._refusal(pod))

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """Refuse, or leave it to the other plugins."""
        reason = self._refusal(pod)
        return PreFilterResult(Status(Code.UNRESOLVABLE, (reason,))) if reason else PASS
